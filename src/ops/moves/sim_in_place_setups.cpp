// Set-ups of gathers and scatters in place: one block may read what another one replaces.
#include <fmt/format.h>

#include "sim/setup.hpp"

namespace weft::sim {
namespace {

struct MoveInPlace {
  const char* name;
  Moving moving;
  std::vector<std::int32_t> counts = {};  // of two ranks
};
const MoveInPlace kMovesInPlace[] = {{"all-gather", Moving::all_gather},
                                     {"broadcast", Moving::broadcast},
                                     {"reduce-scatter", Moving::reduce_scatter},
                                     {"reduce", Moving::reduce},
                                     {"all-gather-v", Moving::all_gather_v, {2, 1}},
                                     {"reduce-scatter-v", Moving::reduce_scatter_v, {1, 2}}};

CallSetup move_in_place(const MoveInPlace& kind, std::uint64_t count, const Grid& grid, bool flows) {
  return {
      .count = count, .grids = {grid}, .in_place = true, .moving = kind.moving, .flows = flows, .counts = kind.counts};
}

}  // namespace

std::vector<Setup> small_in_place_setups() {
  constexpr Grid blocks{.blocks = 3, .threads = 1}, threads{.blocks = 2, .threads = 2};
  std::vector<Setup> setups;
  for (const MoveInPlace& kind : kMovesInPlace) {
    setups.push_back({.name = fmt::format("{}-in-place", kind.name),
                      .calls = {move_in_place(kind, 16, blocks, false), move_in_place(kind, 13, threads, false)},
                      .bound = 1});
    setups.push_back({.name = fmt::format("{}-in-place-chunks", kind.name),
                      .calls = {move_in_place(kind, 16, blocks, true), move_in_place(kind, 13, threads, true)},
                      .bound = 1,
                      .pipeline_slots = 2});
  }
  return setups;
}

// Over other ranks' links; beside a call that is not in place.
std::vector<Setup> large_in_place_setups() {
  std::vector<Setup> setups;
  for (const unsigned ranks : {3u, 4u}) {
    for (const bool flows : {true, false}) {
      std::vector<CallSetup> calls;
      for (const MoveInPlace& kind : kMovesInPlace) {
        CallSetup call = move_in_place(kind, 40, {.blocks = 3, .threads = 2}, flows);
        call.grids.push_back({.blocks = 2, .threads = 1});
        call.detour = kind.moving != Moving::all_gather && kind.moving != Moving::reduce_scatter;
        if (!kind.counts.empty()) {
          call.counts = std::vector<std::int32_t>(ranks, 0);
          call.counts[1] = 5, call.counts[2] = 1;
          call.padding = Padding::none;
        }
        calls.push_back(call);
      }
      calls.push_back({.count = 9});
      setups.push_back({.name = fmt::format("moves-in-place-{}-ranks{}", flows ? "chunks" : "one-go", ranks),
                        .algorithm = Algorithm::two_shot,
                        .ranks = ranks,
                        .payload = Payload::special,
                        .calls = calls});
    }
  }
  return setups;
}

}  // namespace weft::sim
