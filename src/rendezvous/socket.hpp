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

// Throws Errc::system with the attempt and errno's text.
[[noreturn]] void throw_errno(const std::string& tried);

// The address to which a socket is bound or connected; trivially copyable, so that ranks on one network can exchange
// it.
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

// Empty if the name has no address; `why` then has the resolver's reason.
std::vector<SocketAddress> resolve(const std::string& host, std::uint16_t port, std::string& why);

// Whether `host` names this very host in every place: localhost, 127.0.0.1, ::1 and the like.
bool means_loopback(const std::string& host);
// Whether `host` only has loopback addresses, seen from here. A host's own name often does: Debian's is 127.0.1.1.
bool is_loopback(const std::string& host);

// Addresses of this host's interfaces that other hosts may reach (IPv4).
std::vector<SocketAddress> interface_addresses(std::uint16_t port);

struct ListenArgs {
  std::string host;
  std::uint16_t port = 0;        // 0: the system chooses
  std::string port_origin = {};  // for people: "MASTER_PORT + 1000"
  bool other_hosts = false;      // other hosts must reach it
};
// Listens at the address that `host` has here, and at no other. If that is a loopback address and other hosts must
// reach it, it uses this host's only other address. If there are several, it throws Errc::rendezvous, because `host`
// may mean any of them elsewhere.
UniqueFd listen_tcp(const ListenArgs& args);
// Listens at one exact address.
UniqueFd listen_at(const SocketAddress& address);
// An abstract Unix socket under a name that the kernel chooses. `type` is SOCK_STREAM (then it listens) or SOCK_DGRAM
// (then it receives the sender's credentials with every message).
UniqueFd bind_unix(int type);

// One attempt. Empty if no listener answers; `why` then has the reason.
UniqueFd try_connect(const SocketAddress& address, const Deadline& deadline, std::string& why);

// The next connection at a listener; empty if there is none. Without a descriptor or memory for it: empty and *full, or
// Errc::system without `full`.
UniqueFd accept_connection(int listener, bool* full = nullptr);

std::pair<UniqueFd, UniqueFd> socket_pair();

}  // namespace weft::detail
