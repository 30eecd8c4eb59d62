// Tells whether ranks share a process, a host, and the namespaces that decide which handles they can exchange.
#pragma once

#include <array>
#include <cstdint>

namespace weft::detail {

struct ProcessIdentity {
  std::array<char, 40> host{};  // the kernel's boot id; the host's name if there is none
  std::uint64_t pid_namespace = 0;
  std::uint64_t network_namespace = 0;
  std::int64_t pid = 0;

  static ProcessIdentity current();

  bool same_host(const ProcessIdentity& other) const { return host == other.host; }
  bool same_pids(const ProcessIdentity& other) const {
    return same_host(other) && pid_namespace == other.pid_namespace;
  }
  bool same_network(const ProcessIdentity& other) const {
    return same_host(other) && network_namespace == other.network_namespace;
  }
  bool same_process(const ProcessIdentity& other) const { return same_pids(other) && pid == other.pid; }
};

}  // namespace weft::detail
