// Set-ups of exchanges whose experts have places, some of them empty (MoeExchangeArgs::experts_of_rank). Expert 0 has
// replicas on all ranks, and expert 2 two on the last one.
#include <fmt/format.h>

#include "ops/moe/exchange.hpp"
#include "sim/setup.hpp"

namespace weft::sim {

std::vector<Setup> place_setups() {
  std::vector<Setup> setups;
  const std::vector<Routing> routings{{{0, 1, 0, 2, 2, 2}, {0, 0, 2, 1, 2, -1}}, {{}, {2, 0, 2, 0}}};
  const auto add = [&](const std::string& name, Setup setup) {
    setup.name = "moe-places-" + name;
    setup.payload = Payload::special;
    const unsigned ranks = setup.ranks;
    for (unsigned rank = 0; rank < ranks; ++rank) {
      const bool last = rank + 1 == ranks;
      for (const std::int32_t expert : {0, last ? 2 : -1, last ? 2 : 1, -1})
        setup.exchange.experts_of_rank.push_back(expert);
    }
    setups.push_back(std::move(setup));
  };
  MoeExchangeArgs slots = exchange_of(3, 3, 2), ring = slots;
  ring.path = RowPath::ring;
  ring.ring_rows = 2;
  MoeExchangeArgs contiguous = slots;
  contiguous.layout = RowLayout::expert_contiguous;
  contiguous.alignment = 3;
  contiguous.capacity = 0;
  add("slots", {.calls = moe_calls(routings), .exchange = slots});
  add("slots-ranks3", {.ranks = 3, .calls = moe_calls(routings), .exchange = slots});
  add("tallies", {.calls = moe_calls(routings, {{.blocks = 2, .threads = 2, .tallies = true}}), .exchange = slots});
  add("contiguous", {.calls = moe_calls(routings), .exchange = contiguous});
  add("ring", {.calls = moe_calls(routings, {{3, 2, false, 1}, {2, 2}}), .exchange = ring});
  add("apart", {.calls = moe_apart({routings[0]}, {2, 1}, {2, 1}), .exchange = slots});
  for (const unsigned lanes : {2u, 8u}) {
    const std::vector<Grid> grids{{2, 2 * lanes}, {3, lanes, false, 1}};
    add(fmt::format("lanes{}", lanes), {.lanes = lanes, .calls = moe_calls(routings, grids), .exchange = slots});
    add(fmt::format("ring-lanes{}", lanes), {.lanes = lanes, .calls = moe_calls(routings, grids), .exchange = ring});
  }
  return setups;
}

}  // namespace weft::sim
