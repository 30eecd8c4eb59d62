// Set-ups of dispatches whose rows have payloads beside them (MoeExchangeArgs::payload_bytes): one of a word, and one
// whose second pack is cut.
#include <utility>

#include "ops/moe/exchange.hpp"
#include "sim/setup.hpp"

namespace weft::sim {

std::vector<Setup> payload_setups() {
  std::vector<Setup> setups;
  const auto add = [&](const char* name, Setup setup) {
    setup.name = name;
    setup.payload = Payload::special;
    setup.exchange.payload_bytes = {4, 20};
    setups.push_back(std::move(setup));
  };
  // Tokens of both experts, of one and of none; rows stay on their rank, and go.
  const std::vector<Routing> routings{{{0, 1, 1, -1}, {0, 0}}, {{-1, -1}, {1, 0, 0, 1}}};
  const MoeExchangeArgs slots = exchange_of(2, 2, 2);
  MoeExchangeArgs ring = slots;  // of one place: second tokens need credits
  ring.path = RowPath::ring;
  ring.ring_rows = 1;
  MoeExchangeArgs again = ring;
  again.repeatable = true;
  MoeExchangeArgs compact = ring;
  compact.layout = RowLayout::rank_compact;
  compact.capacity = 0;
  MoeExchangeArgs behind_scales = slots;
  behind_scales.type = RowType::fp8;
  behind_scales.hidden = 16;
  behind_scales.scale_bytes = 8;
  MoeExchangeArgs drops = slots;
  drops.capacity = 1;
  drops.overflow = Overflow::drop;
  // One block sends, and one receives.
  const std::vector<Grid> apart{{.blocks = 3, .threads = 1, .senders = 1}};
  add("moe-payloads", {.calls = moe_calls(routings), .exchange = slots});
  add("moe-payloads-torn8", {.atomic_bytes = 8, .calls = moe_calls(routings), .exchange = behind_scales});
  add("moe-payloads-drop", {.calls = moe_calls(routings, {{2, 2}, {3, 1}}), .exchange = drops});
  add("moe-payloads-tallies",
      {.calls = moe_calls(routings, {{.blocks = 2, .threads = 2, .tallies = true}}), .exchange = slots});
  add("moe-payloads-lanes2", {.lanes = 2, .calls = moe_calls(routings, {{2, 4}}), .exchange = behind_scales});
  add("moe-ring-payloads", {.calls = moe_calls(routings, apart), .exchange = ring});
  add("moe-ring-payloads-both", {.calls = moe_calls(routings), .exchange = ring});
  add("moe-ring-payloads-lanes2",
      {.lanes = 2, .calls = moe_calls(routings, {{.blocks = 3, .threads = 2, .senders = 1}}), .exchange = ring});
  add("moe-ring-payloads-again", {.calls = made_again(moe_calls({routings[0]}, apart), 1), .exchange = again});
  add("moe-ring-payloads-compact", {.calls = moe_calls(routings, apart), .exchange = compact});
  // Experts 0 and 1 are on the first rank: rows for one of them, or for both.
  const std::vector<CallSetup> in_rounds = moe_in_rounds({{{1, 3, 0, 1}, {1, -1}}}, {1, 1}, {2, 1}, {2, 1});
  MoeExchangeArgs of_rounds = exchange_of(2, 4, 2), on_ring = of_rounds;
  on_ring.path = RowPath::ring;
  on_ring.ring_rows = 2;
  add("moe-payloads-rounds", {.calls = in_rounds, .exchange = of_rounds});
  add("moe-ring-payloads-rounds", {.calls = in_rounds, .exchange = on_ring});
  return setups;
}

}  // namespace weft::sim
