// Set-ups of dispatch and combine through a ring. Rings have so few places that rows wait for credits. Warps of a block
// divide the places, as in production.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "ops/moe/exchange.hpp"
#include "sim/setup.hpp"

namespace weft::sim {
namespace {

MoeExchangeArgs ring(std::uint32_t places, std::uint32_t tokens, std::uint32_t experts, std::uint32_t top_k) {
  return {.tokens = tokens,
          .hidden = 8,
          .experts = experts,
          .top_k = top_k,
          .capacity = tokens * experts * top_k,
          .path = RowPath::ring,
          .ring_rows = places};
}

// A call by the ring, then two by the slots beside it, and so on: both have calls of either bank.
std::vector<CallSetup> in_turn(std::vector<CallSetup> calls) {
  unsigned dispatches = 0;
  for (CallSetup& call : calls) {
    if (call.moving != Moving::dispatch || !call.phases.has(0)) continue;
    call.by_slots = dispatches++ % 3 != 0;
    // Blocks that only send are warps there.
    if (call.by_slots) call.grids = {{2, 1}};
  }
  return calls;
}
MoeExchangeArgs with_slots(MoeExchangeArgs args, std::uint32_t tokens) {
  args.slot_tokens = tokens;
  return args;
}

// Blocks of one thread: one for control, one that sends, and one that receives.
constexpr Grid kApart{.blocks = 3, .threads = 1, .senders = 1};

}  // namespace

// Two ranks with one expert each, and one place for each of them: every token but the first needs a credit.
std::vector<Setup> small_ring_setups() {
  constexpr Payload special = Payload::special;
  // Each expert is on the other rank, then on the own one; then tokens are missing.
  const std::vector<Routing> routings{{{1, 0}, {0, 1}}, {{0, 1}, {1}}, {{-1, 1}, {0, 0}}};
  MoeExchangeArgs two_packs = ring(1, 3, 2, 1);
  two_packs.hidden = 16;
  MoeExchangeArgs pieces = ring(1, 2, 2, 2);  // rows of more pieces than a stage has places
  pieces.hidden = 32;
  MoeExchangeArgs by_rank = ring(1, 3, 2, 1);
  by_rank.hidden = 40;
  by_rank.layout = RowLayout::rank_major;
  by_rank.capacity = 0;
  return {
      {.name = "moe-ring-cpu",
       .atomic_bytes = 8,
       .one_thread = true,
       .payload = special,
       .calls = moe_calls(routings),
       .exchange = ring(1, 2, 2, 1)},
      {.name = "moe-ring",
       .payload = special,
       .calls = moe_calls(routings, {kApart}),
       .bound = 1,
       .exchange = ring(1, 2, 2, 1)},
      {.name = "moe-ring-host-counts",
       .atomic_bytes = 8,
       .calls = telling_counts(moe_calls({routings[0], routings[2]}, {kApart})),
       .bound = 1,
       .symmetric_bytes = 3 * sizeof(std::uint64_t),
       .exchange = ring(1, 2, 2, 1)},
      {.name = "moe-ring-both",
       .payload = special,
       .calls = moe_calls({{{1, 0, 1}, {0, 1}}}),
       .exchange = ring(1, 3, 2, 1)},
      // Two blocks send, in turns to one place.
      {.name = "moe-ring-senders",
       .payload = special,
       .calls = moe_calls({{{1, 1, 0}, {0, 1}}}, {{.blocks = 4, .threads = 1, .senders = 2}}),
       .bound = 1,
       .exchange = ring(1, 3, 2, 1)},
      // Tokens without an expert between two others. Several blocks receive.
      {.name = "moe-ring-gaps",
       .payload = special,
       .calls = moe_calls({{{1, -1, -1, 1}, {1, -1, 0}}}, {{.blocks = 4, .threads = 1, .senders = 1}}),
       .bound = 1,
       .exchange = ring(1, 4, 2, 1)},
      {.name = "moe-ring-wrap31",
       .start_epoch = 0x7ffffffeu,
       .calls = moe_calls({{{1, 0}, {}}, {{}, {0, 1}}, {{1}, {0, 0}}}, {kApart}),
       .bound = 1,
       .exchange = ring(1, 2, 2, 1)},
      {.name = "moe-ring-apart",
       .payload = special,
       .calls = moe_apart({{{1, 0}, {0, 1}}, {{-1}, {1, 0}}, {{1, 1}, {0}}}, {2, 1}, {3, 1}),
       .bound = 1,
       .exchange = ring(2, 2, 2, 1)},
      // Two warps of a block share the count of its entries.
      {.name = "moe-ring-threads",
       .payload = special,
       .calls = moe_calls({{{1, 1, 0, 1}, {0, 0, 1}}}, {{.blocks = 3, .threads = 2, .senders = 1}}),
       .bound = 1,
       .exchange = ring(2, 4, 2, 1)},
      {.name = "moe-ring-pieces",
       .payload = special,
       .calls = moe_calls({{{1, 0, 0, 1}, {0, -1}}}, {kApart}),
       .bound = 1,
       .exchange = pieces},
      // Results are copied as they are.
      {.name = "moe-ring-by-rank",
       .payload = special,
       .calls = moe_calls({{{1, 1, 1}, {0, 1}}}, {{.blocks = 4, .threads = 1, .senders = 2}}),
       .bound = 1,
       .exchange = by_rank},
      // Entries of more experts than a tally has words for: places are found one by one.
      {.name = "moe-ring-no-table",
       .calls = moe_calls({{{23, 1, 0, 12}, {12, 0}}}, {kApart}),
       .bound = 1,
       .exchange = ring(1, 2, 24, 2)},
      {.name = "moe-ring-lanes2",
       .lanes = 2,
       .calls = moe_calls({{{1, 1, 1}, {0, 1}}}, {{.blocks = 3, .threads = 2, .senders = 1}}),
       .bound = 1,
       .exchange = two_packs},
      // Slots for two tokens of three.
      {.name = "moe-both",
       .payload = special,
       .calls = in_turn(moe_calls(
           {{{1, 0, 1}, {0, 1, 0}}, {{1, 1}, {0, 0}}, {{1, 1}, {0, 1}}, {{1, 1, -1}, {0, 0}}, {{1, 1}, {0, 0}}},
           {kApart})),
       .bound = 1,
       .exchange = with_slots(ring(1, 3, 2, 1), 2)},
      {.name = "moe-both-wrap31",
       .start_epoch = 0x7ffffffeu,
       .calls = in_turn(moe_calls({{{1}, {}}, {{}, {0}}, {{}, {}}, {{1}, {0}}}, {kApart})),
       .bound = 1,
       .exchange = with_slots(ring(1, 2, 2, 1), 1)},
      {.name = "moe-both-weights",
       .start_epoch = 0xfffffffdu,
       .calls = in_turn(moe_calls({routings[0], routings[2], {{1}, {0}}, {{0, 1, 1}, {1, 0}}}, {kApart})),
       .bound = 1,
       .exchange = with_slots(weighed_late(ring(1, 3, 2, 1)), 2)},
      {.name = "moe-ring-weights",
       .calls = moe_calls({routings[0], routings[2]}, {kApart}),
       .bound = 1,
       .exchange = weighed_late(ring(1, 2, 2, 1))},
      {.name = "moe-ring-weights-cpu",
       .atomic_bytes = 8,
       .one_thread = true,
       .payload = special,
       .calls = moe_calls(routings),
       .exchange = weighed_late(ring(1, 2, 2, 1))},
      {.name = "moe-ring-weights-apart",
       .calls = moe_apart({{{1, 0}, {0, 1}}, {{-1}, {1, 0}}, {{1, 1}, {0}}}, {2, 1}, {3, 1}),
       .bound = 1,
       .exchange = weighed_late(ring(2, 2, 2, 1))},
      {.name = "moe-ring-weights-lanes2",
       .lanes = 2,
       .calls = moe_calls({{{1, 1, 0}, {0, 1, 1}}}, {{.blocks = 3, .threads = 2, .senders = 1}}),
       .bound = 1,
       .exchange = weighed_late(ring(1, 1, 2, 3))},
  };
}

namespace {

// Warps of several lanes, among two ranks.
std::vector<Setup> ring_setups_with_lanes() {
  std::vector<Setup> setups;
  const auto add = [&](unsigned lanes, const char* name, Setup setup) {
    setup.name = fmt::format("moe-ring-lanes{}-{}", lanes, name);
    setup.lanes = lanes;
    setup.payload = Payload::special;
    setups.push_back(std::move(setup));
  };
  for (const unsigned lanes : {2u, 8u}) {
    // More entries than two lanes, two of them possibly alike. One rank has a block for either half; the other has one
    // block, of two warps, for both. No row of one token has room.
    MoeExchangeArgs args = ring(2, 4, 6, 3);
    args.hidden = 16;
    args.capacity = 1;
    args.overflow = Overflow::drop;
    const std::vector<Routing> routings{{{0, 5, 3, 4, 2, 5, 1, 0, -1}, {5, 1, -1, -1, -1, -1, 2, 2, 5, -1, 4, 5}}};
    add(lanes, "mixed", {.calls = moe_calls(routings, {{2, 2 * lanes}, {3, lanes, false, 1}}), .exchange = args});
    // More ids than a thread loads at once.
    MoeExchangeArgs wide = ring(2, 4, 3, 9);
    wide.hidden = 24 * lanes;
    Routing many(2);
    for (int i = 0; i < 36; ++i) many[0].push_back(i * 7 % 5 % 3);
    many[1] = {0, 1, 2, 0, 1, 2, 2, 2, 0};
    add(lanes, "many", {.calls = moe_calls({many}, {{2, 2 * lanes}, {3, lanes, false, 1}}), .exchange = wide});
  }
  // Lanes that share a scale. The order of scales is looked up once a row.
  for (const ScaleOrder order : {ScaleOrder::rows, ScaleOrder::columns}) {
    MoeExchangeArgs scales = ring(1, 2, 2, 1);
    scales.hidden = 2 * kScaleColumns;
    scales.cast = RowCast::fp8;
    scales.scale_order = order;
    add(8, order == ScaleOrder::rows ? "cast" : "columns",
        {.calls = moe_calls({{{1, 1}, {0, 1}}}, {{3, 8, false, 1}}), .exchange = scales});
  }
  return setups;
}

}  // namespace

std::vector<Setup> large_ring_setups() {
  std::vector<Setup> setups;
  for (const unsigned ranks : {2u, 3u, 4u}) {
    const auto hot = static_cast<int>(ranks);  // the last of ranks + 1 experts, as the first rank has two
    // Ranks with other numbers of tokens, which change from call to call; tokens for all experts, for one, for none.
    const Routing first{{0, 1, hot, 0, -1, -1, 1, 0, hot, hot}, {1, 1, hot, -1, 0, hot}, {}};
    const Routing second{{hot, 0}, {-1, 0, hot, 1, 0, 0, -1, hot}, {1, hot, -1, -1, 0, 1}};
    const Routing third{{hot, 0, hot, 1, 0, 1}};
    std::vector<CallSetup> mixed = moe_calls({first, second, third});
    // Grids change from call to call and differ between ranks: with and without blocks that only send.
    const std::vector<std::vector<Grid>> grids{{{3, 2, false, 1}, {2, 1}, {4, 1, false, 2}},
                                               {{2, 2}, {4, 1, false, 1}},
                                               {{3, 2, false, 1}, {3, 1}},
                                               {{4, 1, false, 2}, {2, 2}, {3, 1, false, 1}}};
    for (std::size_t call = 0; call < mixed.size(); ++call) mixed[call].grids = grids[call % grids.size()];
    const auto add = [&](const char* name, Setup setup) {
      setup.name = fmt::format("moe-ring-{}-ranks{}", name, ranks);
      setup.ranks = ranks;
      setup.payload = Payload::special;
      setup.calls = setup.calls.empty() ? mixed : setup.calls;
      if (!setup.has_exchange()) setup.exchange = ring(2, 5, ranks + 1, 2);
      setups.push_back(std::move(setup));
    };
    add("mixed", {});
    add("cpu", {.atomic_bytes = 8, .one_thread = true, .start_epoch = 0xfffffffeu});
    // Four places: tokens need credits in some calls only. A residual is added.
    std::vector<CallSetup> with_residuals = mixed;
    for (CallSetup& call : with_residuals) call.residual = call.moving == Moving::combine;
    add("four", {.atomic_bytes = 8, .calls = with_residuals, .exchange = ring(4, 5, ranks + 1, 2)});
    add("weights", {.calls = with_residuals, .exchange = weighed_late(ring(2, 5, ranks + 1, 2))});
    for (CallSetup& call : with_residuals) call.in_place = call.residual;
    add("in-place", {.calls = with_residuals, .exchange = ring(4, 5, ranks + 1, 2)});
    if (ranks == 4) continue;
    // Some calls by slots: there are none for tokens beyond theirs.
    std::vector<CallSetup> both = in_turn(moe_calls({third, second, first, third, second, first}));
    for (std::size_t call = 0; call < both.size(); ++call) {
      if (!both[call / 2 * 2].by_slots) both[call].grids = grids[call % grids.size()];
    }
    add("both", {.calls = both, .exchange = with_slots(ring(2, 7, ranks + 1, 2), 5)});
    add("beside", {.side_by_side = true, .calls = beside_each_other(mixed, 2)});
    for (const RowLayout layout : {RowLayout::expert_contiguous, RowLayout::rank_major}) {
      const bool by_rank = layout == RowLayout::rank_major;
      MoeExchangeArgs args = ring(2, 5, ranks + 1, 2);
      args.layout = layout;
      args.alignment = by_rank ? 1 : 3;
      args.capacity = by_rank ? 0 : 8;
      args.overflow = Overflow::drop;
      add(by_rank ? "by-rank" : "contiguous", {.calls = mixed, .exchange = args});
    }
    MoeExchangeArgs replicas = ring(2, 5, 3, 2);
    replicas.ranks_of_expert = {{}, {ranks - 1}, {0, 1}};
    for (unsigned rank = 0; rank < ranks; ++rank) replicas.ranks_of_expert[0].push_back(rank);
    add("replicas", {.calls = moe_calls({{{0, 1, 0, 2, 0, 0, 2, 1}, {0, 0, 2, 1, 2, -1}}, {{}, {2, 0, 2, 0, 1, 0}}},
                                        {{3, 2, false, 1}, {2, 2}}),
                     .exchange = replicas});
  }
  std::ranges::move(ring_setups_with_lanes(), std::back_inserter(setups));
  return setups;
}

}  // namespace weft::sim
