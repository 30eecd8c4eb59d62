// Set-ups of copies whose outputs lie in symmetric memory.
#include <fmt/format.h>

#include <utility>

#include "sim/setup.hpp"

namespace weft::sim {

// Outputs in symmetric memory: all kinds in turn at the same places, with and without a detour, and beside calls whose
// outputs lie elsewhere. More chunks than blocks, and more blocks than chunks.
std::vector<Setup> symmetric_setups() {
  std::vector<Setup> setups;
  for (const unsigned ranks : {2u, 3u, 4u}) {
    const auto call = [&](Moving moving, std::uint64_t count, bool detour, std::vector<Grid> grids) {
      CallSetup setup{.count = count,
                      .grids = std::move(grids),
                      .moving = moving,
                      .flows = true,
                      .detour = detour,
                      .symmetric = true,
                      .second = 8};
      if (moving == Moving::all_gather_v) {
        setup.counts.assign(ranks, 1);
        setup.counts[detour ? ranks - 1 : 0] = detour ? 5 : 2;
        setup.counts[1] = 0;
        setup.padding = detour ? Padding::none : Padding::max;
      }
      return setup;
    };
    const auto plain = [&](Moving moving, std::uint64_t count) {
      CallSetup setup = call(moving, count, false, {kSmall});
      setup.symmetric = false;
      return setup;
    };
    const bool relays = ranks > 2;
    CallSetup alone = call(Moving::all_gather_v, 16, relays, {{3, 1}, {2, 2}});
    alone.second = 0;
    const std::vector<CallSetup> calls{
        call(Moving::all_gather, 40, false, {{2, 1}, {3, 2}, kSmall}),
        call(Moving::broadcast, 48, relays, {{3, 2}, {2, 1}}),
        call(Moving::all_gather_v, 8, false, {kSmall, {3, 1}}),
        plain(Moving::all_gather, 16),
        alone,
        call(Moving::all_to_all, 24, false, {{2, 2}, kSmall}),
        call(Moving::broadcast, 40, false, {{5, 1}, kSmall}),
        plain(Moving::reduce_scatter, 16),
        call(Moving::all_gather, 16, false, {{3, 2}}),
    };
    for (const int unit : {8, 16}) {
      setups.push_back({.name = fmt::format("symmetric-torn{}-ranks{}", unit, ranks),
                        .ranks = ranks,
                        .atomic_bytes = unit,
                        .start_epoch = unit == 8 ? 0x7ffffffcu : 0xfffffffcu,
                        .payload = Payload::special,
                        .calls = calls,
                        .symmetric_bytes = 512});
    }
    setups.push_back({.name = fmt::format("symmetric-cpu-ranks{}", ranks),
                      .ranks = ranks,
                      .atomic_bytes = 8,
                      .one_thread = true,
                      .payload = Payload::special,
                      .calls = calls,
                      .symmetric_bytes = 512});
    if (!relays) continue;
    // Two busy ranks, so that every rank relays several owners' chunks at once.
    CallSetup both = call(Moving::all_gather_v, 8, true, {{3, 2}, {2, 2}, {4, 1}});
    both.counts.assign(ranks, 0);
    both.counts[0] = 6, both.counts[1] = 5;
    setups.push_back({.name = fmt::format("symmetric-detours-ranks{}", ranks),
                      .ranks = ranks,
                      .calls = {both, call(Moving::broadcast, 64, true, {{2, 2}, {3, 2}}), both},
                      .pipeline_slots = 6,
                      .pipeline_packs = 2,
                      .symmetric_bytes = 512});
  }
  setups.push_back({.name = "symmetric-groups",
                    .ranks = 3,
                    .groups = {{0, 1, 2}, {2, 0}},
                    .payload = Payload::special,
                    .calls = {{.count = 16, .group = 0, .moving = Moving::all_gather, .flows = true, .symmetric = true},
                              {.count = 24, .group = 1, .moving = Moving::all_to_all, .flows = true, .symmetric = true},
                              {.count = 16, .group = 0, .moving = Moving::broadcast, .flows = true, .symmetric = true},
                              {.count = 8, .group = 1, .moving = Moving::all_gather, .flows = true, .symmetric = true}},
                    .symmetric_bytes = 256});
  return setups;
}

}  // namespace weft::sim
