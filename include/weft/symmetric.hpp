// Symmetric memory: memory of every rank that all its peers reach. If outputs lie in it, at the same place on every
// rank, peers write them at once, in their final place. The calls are all_gather_into_tensor, all_to_all, broadcast and
// all_gather_v (collectives.hpp).
#pragma once

#include <cstddef>
#include <memory>

#include "weft/communicator.hpp"

namespace weft {

namespace detail {
class SymmetricState;
}  // namespace detail

// As many bytes on every rank of a communicator. A handle; copies mean the same memory, and the communicator lives
// until the last copy is gone. data(), bytes() and peer() may be called from any thread, but not while allocate(),
// free(), Communicator::release() or acquire() runs.
class SymmetricMemory {
 public:
  // Collective over the whole communicator, like split(): no call of any of its groups may run while it does, except
  // calls on the GPU's queues. `bytes`: 1 … 2^46, the same on every rank (else Errc::invalid_argument on all ranks).
  // Contents are undefined. The memory is taken until free(), or until the communicator is destroyed; a handle's
  // destruction gives nothing back. There is room for 64 at a time (Errc::invalid_argument), and none while the
  // communicator's memory is released (Errc::released). If a rank has not that much memory left, it throws
  // Errc::system, the others Errc::rendezvous with its reason, and nothing has been taken.
  static SymmetricMemory allocate(const Communicator& communicator, std::size_t bytes);

  // Gives the memory back on all ranks. Collective like allocate(): every rank frees what it took in the same
  // allocate(). Calls on the GPU's queues are finished first, as in Communicator::release(), Errc::timeout included. No
  // call may come while it runs, and no graph or recording that uses the memory may be replayed afterwards.
  // Errc::released on all ranks: one has freed it already, or the communicator's memory is released.
  // Errc::invalid_argument: ranks free different ones. After these errors nothing has happened.
  //
  // No destructor calls it, as all ranks must meet for it: without free() the memory stays until the communicator is
  // destroyed.
  void free();

  // This rank's part, aligned to 256 bytes, in memory of the device. release() takes it away with its contents, and
  // acquire() takes it anew, at the same address or elsewhere (see there): ask again. Throws Errc::released in between,
  // and after free().
  void* data() const;
  std::size_t bytes() const;
  // The address from which this rank reaches the part of world rank `rank`: plain stores and loads of its kernels, or
  // of this process. Null if it cannot reach it. Errc::invalid_argument for a rank that does not exist; else as data().
  void* peer(int rank) const;

 private:
  SymmetricMemory(const Group& world, std::shared_ptr<detail::SymmetricState> state);

  Group world_;
  std::shared_ptr<detail::SymmetricState> state_;
};

}  // namespace weft
