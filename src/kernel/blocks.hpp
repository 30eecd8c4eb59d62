// A rank that is one thread makes a call phase by phase: all blocks of a phase, then the next phase. In a phase a block
// waits for data that other ranks send in the phase before. Chunks may come in the same phase, because a rank's only
// data block makes them all.
#pragma once

#include <array>
#include <cstdint>
#include <utility>

#include "protocol/session.hpp"

namespace weft::detail {

inline constexpr std::uint32_t kThreadBlocks = 2;  // the control block and one for data

// Calls `run.template operator()<phase>()` for the `phases` of an algorithm, until one returns false. Whether
// all returned true.
template <class A, class Run>
bool for_phases(Phases phases, Run&& run) {
  return [&]<int... phase>(std::integer_sequence<int, phase...>) {
    return ((!phases.has(phase) || run.template operator()<phase>()) && ...);
  }
  (std::make_integer_sequence<int, A::kPhases>{});
}

// `team`: one for each block, each of one thread. False: the call has failed, and a thread of this rank has reported
// the reason.
template <class A, class T>
bool run_blocks(std::array<T, kThreadBlocks> team, const Call& call, const typename A::Work& work) {
  static_assert(T::kMostBlocks >= kThreadBlocks);
  const Turn turn = turn_of<A>(work);
  std::array<Session, kThreadBlocks> session{approach(team[0], call), approach(team[1], call)};
  for (std::uint32_t block = 0; block < kThreadBlocks; ++block) {
    if (!enter(team[block], session[block], ask(team[block], session[block]), turn)) return false;
  }
  // Before anything is sent; otherwise two threads would write to the same slots. A GPU's data blocks cannot know it.
  if (!alone(team[0], session[0], 0)) return false;
  const std::array<typename A::ThreadPlan, kThreadBlocks> thread_plan{A::thread_plan(team[0], call, work),
                                                                      A::thread_plan(team[1], call, work)};
  std::array prefetched{A::prefetch(team[0], session[0], work, thread_plan[0]),
                        A::prefetch(team[1], session[1], work, thread_plan[1])};
  const bool good = for_phases<A>(phases_of<A>(work), [&]<int phase>() {
    for (std::uint32_t block = 0; block < kThreadBlocks; ++block) {
      if (!A::template run<phase>(team[block], session[block], work, thread_plan[block], prefetched[block]))
        return false;
    }
    return true;
  });
  for (std::uint32_t block = 0; block < kThreadBlocks; ++block) leave(team[block], session[block], turn);
  return good;
}

}  // namespace weft::detail
