// The few socket calls that the rendezvous needs, with errors as exceptions. All sockets are non-blocking and
// close-on-exec.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/deadline.hpp"
#include "rendezvous/unique_fd.hpp"

namespace weft::detail {

// Throws Errc::system with what was tried and errno's text.
[[noreturn]] void throw_errno(const std::string& tried);

// Where a socket is bound or connected to; trivially copyable, so that ranks on one network can exchange it.
struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = sizeof(sockaddr_storage);

  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  std::string host() const;  // numeric; empty for Unix sockets
  std::uint16_t port() const;
  bool is_loopback() const;
};

SocketAddress local_address(int socket);

// Empty where the name has no address; `why` then says the resolver's reason.
std::vector<SocketAddress> resolve(const std::string& host, std::uint16_t port, std::string& why);

// Whether `host` names this very host in every place: localhost, 127.0.0.1, ::1 and the like.
bool means_loopback(const std::string& host);
// Whether it has loopback addresses alone, seen from here. A host's own name often has: Debian's is 127.0.1.1.
bool is_loopback(const std::string& host);

// Those of this host's interfaces that other hosts may reach (IPv4).
std::vector<SocketAddress> interface_addresses(std::uint16_t port);

struct ListenArgs {
  std::string host;
  std::uint16_t port = 0;        // 0: the system chooses
  std::string port_origin = {};  // for people: "MASTER_PORT + 1000"
  bool other_hosts = false;      // they shall reach it
};
// Listens at the address that `host` has here, and at no other. Where that is a loopback address and other hosts are to
// reach it, it is this host's only other address; where there are several, it is Errc::rendezvous, as nobody knows
// which of them `host` is elsewhere.
UniqueFd listen_tcp(const ListenArgs& args);
// Listens at one exact address.
UniqueFd listen_at(const SocketAddress& address);
// An abstract Unix socket under a name that the kernel chooses; `type` is SOCK_STREAM (then it
// listens) or SOCK_DGRAM (then it receives the sender's credentials with every message).
UniqueFd bind_unix(int type);

// One attempt. Empty when nobody answers; `why` then says the reason.
UniqueFd try_connect(const SocketAddress& address, const Deadline& deadline, std::string& why);

// Who waits at a listener; empty when nobody does. Where there is no descriptor or memory for it, it is empty and
// *full, or Errc::system without `full`.
UniqueFd accept_connection(int listener, bool* full = nullptr);

std::pair<UniqueFd, UniqueFd> socket_pair();

}  // namespace weft::detail
