// Notices that the process of a peer is gone, without the peer's help.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/peer_watch.hpp"
#include "rendezvous/bootstrap.hpp"

namespace weft::detail {

// Watches the processes of all peers by pidfd, which also sees zombie children. Ranks that are threads of this process
// are never dead.
class Liveness final : public PeerWatch {
 public:
  // Collective.
  static Liveness create(Bootstrap& bootstrap);

  // One system call.
  std::optional<int> dead_peer() const override;

  // All dead peers.
  std::vector<int> dead_peers() const;

  // The reason why `rank` is not watched (another host, another PID namespace, pidfd_open refused); empty if it is, and
  // for ranks of this process.
  const std::string& unwatched_reason(int rank) const { return unwatched_.at(static_cast<std::size_t>(rank)); }

 private:
  std::vector<UniqueFd> processes_;  // by rank; empty if not watched
  UniqueFd epoll_;                   // all of them, so that a check is one call whatever their number
  std::vector<std::string> unwatched_;
};

}  // namespace weft::detail
