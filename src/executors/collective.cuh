// The kernel of every operation: wait for the kernel before, enter, the phases, leave.
#pragma once

#include <utility>

#include "core/plan.hpp"
#include "core/session.hpp"
#include "team/cuda_block.cuh"

namespace weft::detail {

template <class A>
constexpr int max_threads_of() {
  if constexpr (requires { A::kMostThreads; }) {
    return A::kMostThreads;
  } else {
    return max_threads(A::kSize);
  }
}
template <class A>
constexpr int kMaxThreads = max_threads_of<A>();

template <class A, int... phase>
__device__ __forceinline__ void run_phases(CudaBlock& team, const Session& session, const typename A::Places& places,
                                           const typename A::Early& early, std::integer_sequence<int, phase...>) {
  static_cast<void>((A::template run<phase>(team, session, places, early) && ...));
}

template <class A>
__global__ void __launch_bounds__(kMaxThreads<A>)
    collective(const __grid_constant__ Call call, const __grid_constant__ typename A::Work work) {
  CudaBlock team;
  // While the kernel before this one still runs: nothing here reads what it may write.
  Session session = approach(team, call);
  const typename A::Places places = A::places(team, call, work);
  ptx::wait_for_predecessor();
  ptx::launch_successor();
  const typename A::Early early = A::early(team, session, places);
  if (!enter(team, session)) return;
  run_phases<A>(team, session, places, early, std::make_integer_sequence<int, A::kPhases>{});
  leave(team, session);
}

}  // namespace weft::detail
