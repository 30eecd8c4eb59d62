// How a launch runs in the simulator: as executors/cuda_launch.cuh runs a kernel, thread by thread, or as
// executors/cpu_run.hpp does, phase by phase.
#pragma once

#include <array>
#include <functional>
#include <utility>

#include "core/session.hpp"
#include "sim/team.hpp"

namespace weft::sim {

// One thread's part of one launch; or, where a rank is one thread, all of it.
using Kernel = std::function<void(Machine& machine, Place place, const detail::Call& call)>;

template <class A, class Run>
void for_phases(Run&& run) {
  [&]<int... phase>(std::integer_sequence<int, phase...>) {
    static_cast<void>((run.template operator()<phase>() && ...));
  }
  (std::make_integer_sequence<int, A::kPhases>{});
}

template <class A, int unit>
void run_thread(Machine& machine, Place place, const detail::Call& call, const typename A::Work& work) {
  SimTeam<unit> team{machine, place};
  detail::Session session = approach(team, call);
  const typename A::Places places = A::places(team, call, work);
  const typename A::Early early = A::early(team, session, places);
  if (!enter(team, session)) return;
  for_phases<A>([&]<int phase>() { return A::template run<phase>(team, session, places, early); });
  leave(team, session);
}

inline constexpr std::uint32_t kBlocks = 2;  // of a rank that is one thread

template <class A, class T>
void run_blocks(std::array<T, kBlocks> team, const detail::Call& call, const typename A::Work& work) {
  std::array<detail::Session, kBlocks> session{approach(team[0], call), approach(team[1], call)};
  for (std::uint32_t block = 0; block < kBlocks; ++block) {
    if (!enter(team[block], session[block])) return;
  }
  if (!alone(team[0], session[0], 0)) return;
  const std::array<typename A::Places, kBlocks> places{A::places(team[0], call, work), A::places(team[1], call, work)};
  const std::array<typename A::Early, kBlocks> early{A::early(team[0], session[0], places[0]),
                                                     A::early(team[1], session[1], places[1])};
  bool good = true;
  for_phases<A>([&]<int phase>() {
    for (std::uint32_t block = 0; good && block < kBlocks; ++block) {
      good = A::template run<phase>(team[block], session[block], places[block], early[block]);
    }
    return good;
  });
  for (std::uint32_t block = 0; block < kBlocks; ++block) leave(team[block], session[block]);
}

template <class A, int unit>
void run_rank(Machine& machine, Place place, const detail::Call& call, const typename A::Work& work) {
  run_blocks<A>(std::array{SimTeam<unit>{machine, {0, kBlocks, 0, 1, place.host_epoch}},
                           SimTeam<unit>{machine, {1, kBlocks, 0, 1, place.host_epoch}}},
                call, work);
}

template <class A, int unit>
Kernel kernel_of(const typename A::Work& work, bool one_thread) {
  auto run = &run_thread<A, unit>;
  if constexpr (unit == 8) run = one_thread ? &run_rank<A, unit> : run;  // packs of CPU ranks travel so
  return [run, work](Machine& machine, Place place, const detail::Call& call) { run(machine, place, call, work); };
}

}  // namespace weft::sim
