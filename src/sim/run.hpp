// How a launch runs in the simulator: as kernel/collective.cuh runs a kernel, thread by thread, or as
// kernel/blocks.hpp does, phase by phase.
#pragma once

#include <array>
#include <functional>

#include "kernel/blocks.hpp"
#include "protocol/session.hpp"
#include "sim/team.hpp"
#include "weft/error.hpp"

namespace weft::sim {

// One thread's part of one launch; or, where a rank is one thread, all of it.
using Kernel = std::function<void(Machine& machine, Place place, const detail::Call& call)>;

template <class A, int unit, unsigned lanes = 1>
void run_thread(Machine& machine, Place place, const detail::Call& call, const typename A::Work& work) {
  SimTeam<unit, lanes> team{machine, place};
  detail::Session session = approach(team, call);
  const typename A::Places places = A::places(team, call, work);
  const detail::Entry entry = ask(team, session);
  auto early = A::early(team, session, work, places);
  const detail::Phases phases = detail::phases_of<A>(work);
  if (!enter_as<A>(team, session, entry, phases, work)) return;
  detail::for_phases<A>(phases,
                        [&]<int phase>() { return A::template run<phase>(team, session, work, places, early); });
  detail::leave<A>(team, session, phases);
}

template <class A, int unit>
void run_rank(Machine& machine, Place place, const detail::Call& call, const typename A::Work& work) {
  detail::run_blocks<A>(std::array{SimTeam<unit>{machine, {0, detail::kThreadBlocks, 0, 1, place.host_epoch}},
                                   SimTeam<unit>{machine, {1, detail::kThreadBlocks, 0, 1, place.host_epoch}}},
                        call, work);
}

// Packs of CPU ranks travel in units of 8 bytes. Throws where one_thread is for others.
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

// Of what one rank does alone (protocol/one_rank.hpp).
template <class A, int unit, unsigned lanes = 1>
Kernel one_rank_kernel_of(const typename A::Work& work, bool one_thread) {
  return [work, one_thread](Machine& machine, Place place, const detail::Call& call) {
    if (one_thread) place = {.block = 0, .blocks = 1, .thread = 0, .threads = 1, .host_epoch = place.host_epoch};
    SimTeam<unit, lanes> team{machine, place};
    A::run(team, call, work);
  };
}

}  // namespace weft::sim
