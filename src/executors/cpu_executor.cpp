// All blocks of a phase, then the next phase: no block waits in a phase for what another sends in it.
#include <array>
#include <atomic>
#include <utility>

#include "core/dispatch.hpp"
#include "executors/executor.hpp"
#include "team/cpu_thread.hpp"

namespace weft::detail {
namespace {

constexpr std::uint32_t kBlocks = 2;  // the control block and one for data

template <class A>
void run(const Call& call, const typename A::Work& work, Liveness* liveness) {
  // What this rank wrote in earlier calls (slots put back to rest) is seen by peers before what it sends in this one.
  std::atomic_thread_fence(std::memory_order_acq_rel);
  std::array<CpuThread, kBlocks> team{CpuThread{0, kBlocks, liveness}, CpuThread{1, kBlocks, liveness}};
  std::array<Session, kBlocks> session{approach(team[0], call), approach(team[1], call)};
  for (std::uint32_t block = 0; block < kBlocks; ++block) {
    if (!enter(team[block], session[block])) return;
  }
  // Before anything is sent, unlike on a GPU, whose data blocks cannot know: two threads would write to the same slots.
  if (!alone(team[0], session[0], 0)) return;
  const std::array<typename A::Places, kBlocks> places{A::places(team[0], call, work), A::places(team[1], call, work)};
  const std::array<typename A::Early, kBlocks> early{A::early(team[0], session[0], places[0]),
                                                     A::early(team[1], session[1], places[1])};
  const auto run_phase = [&]<int phase>() {
    for (std::uint32_t block = 0; block < kBlocks; ++block) {
      if (!A::template run<phase>(team[block], session[block], places[block], early[block])) return false;
    }
    return true;
  };
  [&]<int... phase>(std::integer_sequence<int, phase...>) {
    static_cast<void>((run_phase.template operator()<phase>() && ...));
  }
  (std::make_integer_sequence<int, A::kPhases>{});
  for (std::uint32_t block = 0; block < kBlocks; ++block) leave(team[block], session[block]);
}

}  // namespace

void run_on_cpu(const PlannedCall& planned, Liveness* liveness) {
  with_instance(planned.operation,
                [&]<class A>(const typename A::Work& work) { run<A>(planned.call, work, liveness); });
}

}  // namespace weft::detail
