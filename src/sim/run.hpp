// Runs a launch in the simulator: thread by thread, as kernel/collective.cuh runs a kernel, or phase by phase, as
// kernel/blocks.hpp does.
#pragma once

#include <array>
#include <functional>
#include <type_traits>

#include "kernel/blocks.hpp"
#include "kernel/instances.hpp"
#include "protocol/session.hpp"
#include "sim/team.hpp"
#include "weft/error.hpp"

namespace weft::sim {

// The rows of a family's list that set-ups run, which `is_simulated` tells from a row's query. Others would take
// minutes to compile, for each team anew.
template <auto is_simulated, class... Rows>
constexpr auto rows_of(detail::Instances<Rows...>) {
  return detail::Join<
      std::conditional_t<is_simulated(Rows::kQuery), detail::Instances<Rows>, detail::Instances<>>...>{};
}

// One thread's part of one launch; all of the launch if a rank is one thread.
using Kernel = std::function<void(Machine& machine, Place place, const detail::Call& call)>;

// Any simulated team's thread.
template <class A, class T>
void run_with(T& team, const detail::Call& call, const typename A::Work& work) {
  detail::Session session = approach(team, call);
  const typename A::ThreadPlan thread_plan = A::thread_plan(team, call, work);
  const detail::Entry entry = ask(team, session);
  auto prefetched = A::prefetch(team, session, work, thread_plan);
  const detail::Turn turn = detail::turn_of<A>(work);
  if (!enter_as<A>(team, session, entry, turn, work)) return;
  detail::for_phases<A>(detail::phases_of<A>(work), [&]<int phase>() {
    return A::template run<phase>(team, session, work, thread_plan, prefetched);
  });
  detail::leave(team, session, turn);
}

template <class A, int unit, unsigned lanes = 1>
void run_thread(Machine& machine, Place place, const detail::Call& call, const typename A::Work& work) {
  SimTeam<unit, lanes> team{machine, place};
  run_with<A>(team, call, work);
}

template <class A, int unit>
void run_rank(Machine& machine, Place place, const detail::Call& call, const typename A::Work& work) {
  detail::run_blocks<A>(std::array{SimTeam<unit>{machine, {0, detail::kThreadBlocks, 0, 1, place.host_epoch}},
                                   SimTeam<unit>{machine, {1, detail::kThreadBlocks, 0, 1, place.host_epoch}}},
                        call, work);
}

// Packs of CPU ranks travel in units of 8 bytes: throws if one_thread comes with other units.
template <class A, int unit, unsigned lanes = 1>
Kernel kernel_of(const typename A::Work& work, bool one_thread) {
  auto run = &run_thread<A, unit, lanes>;
  if constexpr (unit == 8) {
    run = one_thread ? &run_rank<A, unit> : run;
  } else if (one_thread) {
    throw Error(Errc::invalid_argument, "simulator: ranks of one thread have packs in units of 8 bytes");
  }
  return [run, work](Machine& machine, Place place, const detail::Call& call) { run(machine, place, call, work); };
}

// For an operation that is local to one rank (protocol/one_rank.hpp).
template <class A, int unit, unsigned lanes = 1>
Kernel one_rank_kernel_of(const typename A::Work& work, bool one_thread) {
  return [work, one_thread](Machine& machine, Place place, const detail::Call& call) {
    if (one_thread) place = {.block = 0, .blocks = 1, .thread = 0, .threads = 1, .host_epoch = place.host_epoch};
    SimTeam<unit, lanes> team{machine, place};
    A::run(team, call, work);
  };
}

}  // namespace weft::sim
