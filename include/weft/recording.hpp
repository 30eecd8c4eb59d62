// Recorded calls: on CPU ranks the counterpart of a captured CUDA graph, so that replay patterns can be tested without
// GPUs.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "weft/communicator.hpp"

namespace weft {

namespace detail {
struct RecordedCalls;
}  // namespace detail

// Calls that one rank has planned and will make again.
//
// A recording is each rank's own affair, like a captured graph. Ranks must agree on the calls that are made, not on
// which of them are recorded, nor on how recordings divide them. Copying a Recording copies a reference; the
// communicator lives until the last reference is gone. Thread safety: replays are calls of the groups they were
// recorded on (see Group).
class Recording {
 public:
  // Runs `calls` in this thread. Collective calls that it makes on `communicator` or a group of it are not made: they
  // are checked, planned and kept with their pointers. Nothing is sent. Calls from other threads are made as ever. A
  // layer of experts is kept with its functions, which replays call (MoeLayer).
  //
  // Throws Errc::unsupported for a CUDA communicator (capture a CUDA graph instead) and Errc::invalid_argument inside
  // of another capture. A call on another communicator, or one that is rejected for its arguments, throws inside of
  // `calls`. An exception that leaves `calls` is passed on, and nothing is kept.
  static Recording capture(const Communicator& communicator, const std::function<void()>& calls);

  // Makes the calls, in order, with the present contents of their tensors. Mixes freely with eager calls and other
  // recordings.
  //
  // Throws the fault of the first call that failed, as all_reduce() does, and what a layer's function throws. The calls
  // behind it are not made. A layer tells the peers of its own exchange; who waits in other calls ends by the deadline.
  // Errc::released: the communicator's memory is released, or acquire() has found it elsewhere; then the calls must be
  // captured anew. Inside of a capture the calls are kept once more, as a graph that is launched into a capture becomes
  // part of it.
  void replay() const;

  // Steps. Kernels: one for each piece of messages larger than the communicator's limits, one more for counts on the
  // host. And each time that a layer's function is called.
  std::size_t size() const;

 private:
  explicit Recording(std::shared_ptr<const detail::RecordedCalls> calls) : calls_(std::move(calls)) {}
  std::shared_ptr<const detail::RecordedCalls> calls_;
};

}  // namespace weft
