// How a CPU rank makes a call: all blocks of a phase, then the next phase, as no block waits in a phase for what
// another sends in it.
#pragma once

#include <array>
#include <atomic>
#include <utility>

#include "core/channel.hpp"
#include "core/operation.hpp"
#include "core/session.hpp"
#include "team/cpu_thread.hpp"

namespace weft::detail {

inline constexpr std::uint32_t kCpuBlocks = 2;  // the control block and one for data

template <class A>
void run_call(const Call& call, const typename A::Work& work, Liveness* liveness) {
  // What this rank wrote in earlier calls (slots put back to rest) is seen by peers before what it sends in this one.
  std::atomic_thread_fence(std::memory_order_acq_rel);
  std::array<CpuThread, kCpuBlocks> team{CpuThread{0, kCpuBlocks, liveness}, CpuThread{1, kCpuBlocks, liveness}};
  std::array<Session, kCpuBlocks> session{approach(team[0], call), approach(team[1], call)};
  for (std::uint32_t block = 0; block < kCpuBlocks; ++block) {
    if (!enter(team[block], session[block])) return;
  }
  // Before anything is sent, unlike on a GPU, whose data blocks cannot know: two threads would write to the same slots.
  if (!alone(team[0], session[0], 0)) return;
  const std::array<typename A::Places, kCpuBlocks> places{A::places(team[0], call, work),
                                                          A::places(team[1], call, work)};
  const std::array<typename A::Early, kCpuBlocks> early{A::early(team[0], session[0], places[0]),
                                                        A::early(team[1], session[1], places[1])};
  const auto run_phase = [&]<int phase>() {
    for (std::uint32_t block = 0; block < kCpuBlocks; ++block) {
      if (!A::template run<phase>(team[block], session[block], places[block], early[block])) return false;
    }
    return true;
  };
  [&]<int... phase>(std::integer_sequence<int, phase...>) {
    static_cast<void>((run_phase.template operator()<phase>() && ...));
  }
  (std::make_integer_sequence<int, A::kPhases>{});
  for (std::uint32_t block = 0; block < kCpuBlocks; ++block) leave(team[block], session[block]);
}

// One translation unit each.
void run_operation(const Call& call, const AllReduceOperation& operation, Liveness* liveness);
void run_operation(const Call& call, const MoveOperation& operation, Liveness* liveness);
void run_operation(const Call& call, const MoeOperation& operation, Liveness* liveness);

}  // namespace weft::detail
