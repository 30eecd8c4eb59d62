// Tells waiting threads whether a peer's process is gone.
#pragma once

#include <optional>

namespace weft::detail {

class PeerWatch {
 public:
  virtual ~PeerWatch() = default;
  // The rank of a peer whose process is gone. Callable from any thread.
  virtual std::optional<int> dead_peer() const = 0;

 protected:
  PeerWatch() = default;
  PeerWatch(const PeerWatch&) = default;
  PeerWatch(PeerWatch&&) = default;
  PeerWatch& operator=(const PeerWatch&) = default;
  PeerWatch& operator=(PeerWatch&&) = default;
};

}  // namespace weft::detail
