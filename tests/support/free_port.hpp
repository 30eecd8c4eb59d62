// A port of the loopback address that nobody listens at. Most likely it is still free when the test uses it.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <stdexcept>

#include "rendezvous/unique_fd.hpp"

namespace weft::test {

inline int free_port() {
  const detail::UniqueFd probe(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  if (::bind(probe.get(), reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      ::getsockname(probe.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    throw std::runtime_error("no free port");
  }
  return ntohs(address.sin_port);
}

// The MASTER_PORT of ranks that meet at a free port, a thousand ports past it.
inline int free_master_port() {
  return free_port() - 1000;
}

}  // namespace weft::test
