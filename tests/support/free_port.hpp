// A port of the loopback address that nobody listens at, most likely still so when it is used: none of those that the
// system gives to whoever asks for any, of which other processes take many, and another one each time.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
#include <cstdint>
#include <random>
#include <stdexcept>

#include "rendezvous/unique_fd.hpp"

namespace weft::test {

inline int free_port() {
  constexpr unsigned first = 20'000, ports = 12'000;
  static std::atomic<unsigned> next = std::random_device()();
  for (unsigned tries = 0; tries < ports; ++tries) {
    const detail::UniqueFd probe(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const auto port = static_cast<std::uint16_t>(first + next++ % ports);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    if (::bind(probe.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0) return port;
  }
  throw std::runtime_error("no free port");
}

}  // namespace weft::test
