// The kernel of every operation (wait for the previous kernel, enter, the phases, leave), and of operations local to
// one rank.
#pragma once

#include <utility>

#include "kernel/most_threads.hpp"
#include "protocol/session.hpp"
#include "team/cuda_block.cuh"
#include "team/cuda_warp_group.cuh"

namespace weft::detail {

template <class A, class T, class Prefetched, int... phase>
__device__ __forceinline__ void run_phases(T& team, const Session& session, const typename A::ThreadPlan& thread_plan,
                                           Prefetched& prefetched, const typename A::Work& work, Phases phases,
                                           std::integer_sequence<int, phase...>) {
  static_cast<void>(
      ((!phases.has(phase) || A::template run<phase>(team, session, work, thread_plan, prefetched)) && ...));
}

// The algorithm's view of a block: the block, or a warp group of it if the algorithm gives the number of warp groups.
template <class A>
__device__ __forceinline__ auto team_of([[maybe_unused]] const typename A::Work& work) {
  if constexpr (requires { A::kGpuStage; }) {
    return CudaWarpGroup<A::kGpuStage>(A::warp_groups(work));
  } else if constexpr (requires { A::warp_groups(work); }) {
    return CudaWarpGroup<>(A::warp_groups(work));
  } else {
    return CudaBlock();
  }
}

template <class A>
__global__ void __launch_bounds__(kMaxThreads<A>, 1)
    collective(const __grid_constant__ Call call, const __grid_constant__ typename A::Work work) {
  CudaBlock block;
  auto team = team_of<A>(work);
  // The previous kernel still runs here: nothing reads memory that it may write.
  Session session = approach(block, call);
  const typename A::ThreadPlan thread_plan = A::thread_plan(team, call, work);
  ptx::wait_for_predecessor();
  ptx::launch_successor();
  const Entry entry = ask(block, session);
  auto prefetched = A::prefetch(team, session, work, thread_plan);
  const Turn turn = turn_of<A>(work);
  if (!enter_as<A>(block, session, entry, turn, work)) return;
  run_phases<A>(team, session, thread_plan, prefetched, work, phases_of<A>(work),
                std::make_integer_sequence<int, A::kPhases>{});
  leave(block, session, turn);
}

template <class A>
__global__ void __launch_bounds__(A::kMostThreads)
    one_rank(const __grid_constant__ Call call, const __grid_constant__ typename A::Work work) {
  CudaBlock block;
  ptx::wait_for_predecessor();
  ptx::launch_successor();
  A::run(block, call, work);
}

}  // namespace weft::detail
