// Symmetric memory: memory of every rank that all its peers reach. Outputs that lie in it, at the same place on every
// rank, are written by peers at once, in their final place (all_gather_into_tensor, all_to_all, broadcast,
// all_gather_v; collectives.hpp).
#pragma once

#include <cstddef>
#include <memory>

#include "weft/communicator.hpp"

namespace weft {

namespace detail {
class SymmetricState;
}  // namespace detail

// As many bytes on every rank of a communicator. A handle; copies mean the same memory, and the communicator lives
// until the last one is gone. data(), bytes() and peer() may be called from any thread, but not while allocate(),
// free(), Communicator::release() or acquire() runs.
class SymmetricMemory {
 public:
  // Collective over the whole communicator, like split(): no call of any of its groups may run while this does, but for
  // those that are on the GPU's queues. `bytes`: 1 … 2^46, the same on every rank (Errc::invalid_argument on all ranks
  // where they are not). Contents are undefined. The memory is taken until free(), or until the communicator is
  // destroyed; handles that go give nothing back. There is room for 64 at a time (Errc::invalid_argument), and none
  // while the communicator's memory is released (Errc::released). Where a rank has not that much memory left, it throws
  // Errc::system, the others Errc::rendezvous with its reason, and nothing has been taken.
  static SymmetricMemory allocate(const Communicator& communicator, std::size_t bytes);

  // Gives it back on all ranks. Collective like allocate(): every rank frees what it took in the same allocate(). Calls
  // that are on the GPU's queues are finished first, as Communicator::release() does it, Errc::timeout included; none
  // may come while it runs, and no graph or recording that uses it may be replayed afterwards. Errc::released on all
  // ranks where one has freed it already, or while the communicator's memory is released; Errc::invalid_argument where
  // ranks free different ones. Then nothing has happened.
  void free();

  // This rank's part, aligned to 256 bytes; of the memory of the device. release() takes it away with its contents, and
  // acquire() takes it anew, where it lay before or elsewhere (see there): ask again. Throws Errc::released in between,
  // and when it has been freed.
  void* data() const;
  std::size_t bytes() const;
  // Where the part of world rank `rank` is reached from here: by plain stores and loads of this rank's kernels, or of
  // this process. Null where it cannot be. Errc::invalid_argument for a rank that there is not; else as data().
  void* peer(int rank) const;

 private:
  SymmetricMemory(const Group& world, std::shared_ptr<detail::SymmetricState> state);

  Group world_;
  std::shared_ptr<detail::SymmetricState> state_;
};

}  // namespace weft
