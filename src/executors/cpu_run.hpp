// How a CPU rank makes a call. False: it has failed, and the reason is on record.
#pragma once

#include <array>
#include <atomic>

#include "core/channel.hpp"
#include "core/operation.hpp"
#include "executors/blocks.hpp"
#include "team/cpu_thread.hpp"

namespace weft::detail {

template <class A>
bool run_call(const Call& call, const typename A::Work& work, Liveness* liveness) {
  // What this rank wrote in earlier calls (slots put back to rest) is seen by peers before what it sends in this one.
  std::atomic_thread_fence(std::memory_order_acq_rel);
  return run_blocks<A>(std::array{CpuThread{0, kThreadBlocks, liveness}, CpuThread{1, kThreadBlocks, liveness}}, call,
                       work);
}

template <class A>
bool run_one_rank(const Call& call, const typename A::Work& work, Liveness* liveness) {
  CpuThread thread(0, 1, liveness);
  return A::run(thread, call, work);
}

// One translation unit each.
bool run_operation(const Call& call, const AllReduceOperation& operation, Liveness* liveness);
bool run_operation(const Call& call, const MoveOperation& operation, Liveness* liveness);
bool run_operation(const Call& call, const MoeOperation& operation, Liveness* liveness);
bool run_operation(const Call& call, const NormOperation& operation, Liveness* liveness);
bool run_operation(const Call& call, const NormRowsOperation& operation, Liveness* liveness);
bool run_operation(const Call& call, const TakeOperation& operation, Liveness* liveness);
bool run_operation(const Call& call, const RejectionOperation& operation, Liveness* liveness);

}  // namespace weft::detail
