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

// Listens where ranks that are told `host` will look. `port` 0 lets the system choose.
UniqueFd listen_tcp(const std::string& host, std::uint16_t port);
// Listens at one exact address.
UniqueFd listen_at(const SocketAddress& address);
// An abstract Unix socket under a name that the kernel chooses; `type` is SOCK_STREAM (then it
// listens) or SOCK_DGRAM (then it receives the sender's credentials with every message).
UniqueFd bind_unix(int type);

// One attempt. Empty when nobody answers; `why` then says the reason.
UniqueFd try_connect(const SocketAddress& address, const Deadline& deadline, std::string& why);

// Who waits at a listener; empty when nobody does.
UniqueFd accept_connection(int listener);

std::pair<UniqueFd, UniqueFd> socket_pair();

}  // namespace weft::detail
