// Set-ups of dispatch and combine in rounds of experts.
#include <fmt/format.h>

#include <utility>

#include "ops/moe/exchange.hpp"
#include "sim/setup.hpp"

namespace weft::sim {
namespace {

// Through a ring that has a place for each token.
MoeExchangeArgs on_ring(MoeExchangeArgs args) {
  args.path = RowPath::ring;
  args.ring_rows = args.tokens;
  return args;
}

// Dispatches and combines on a stream each: a round of combine runs beside later rounds of dispatch.
std::vector<CallSetup> on_two_streams(std::vector<CallSetup> calls) {
  int last_combine = -1, before_it = -1, wait = -1;
  for (int i = 0; i < static_cast<int>(calls.size()); ++i) {
    CallSetup& call = calls[static_cast<std::size_t>(i)];
    if (call.moving == Moving::dispatch && call.phases.has(0)) call.after = before_it;  // of two handle slots
    if (call.moving == Moving::dispatch && !call.phases.has(0)) wait = i;
    if (call.moving == Moving::combine && call.phases.has(0)) call.after = wait;
    if (call.moving == Moving::combine && !call.phases.has(0)) before_it = std::exchange(last_combine, i);
  }
  return calls;
}

}  // namespace

std::vector<CallSetup> moe_in_rounds(const std::vector<Routing>& routings, const Division& division, Grid of_send,
                                     Grid of_wait) {
  std::vector<CallSetup> calls;
  const auto add = [&](Moving moving, detail::Phases phases, int of, unsigned round) {
    const bool dispatches = moving == Moving::dispatch;
    calls.push_back({.grids = {(phases == detail::kSend) == dispatches ? of_send : of_wait},
                     .group = dispatches ? 0u : 1u,
                     .moving = moving,
                     .phases = phases,
                     .of = of,
                     .rounds = division,
                     .round = round});
    return static_cast<int>(calls.size()) - 1;
  };
  for (const Routing& ids : routings) {
    const int dispatch = add(Moving::dispatch, detail::kSend, -1, 0);
    calls.back().ids = ids;
    int combine = dispatch;
    for (unsigned round = 0; round < division.size(); ++round) {
      add(Moving::dispatch, detail::kWait, dispatch, round);
      const int sent = add(Moving::combine, detail::kSend, combine, round);
      if (round == 0) combine = sent;
    }
    add(Moving::combine, detail::kWait, combine, 0);
  }
  return calls;
}

// Two ranks with two experts each, in a round each. Rows are for the first round, for the second one, or for both.
std::vector<Setup> small_round_setups() {
  const std::vector<Routing> routings{{{3, 2}, {1, -1}}, {{3, 1}, {0, 0}}};
  const std::vector<CallSetup> calls = moe_in_rounds(routings, {1, 1}, {2, 1}, {2, 1});
  return {
      {.name = "moe-rounds",
       .payload = Payload::special,
       .calls = moe_in_rounds({routings[0]}, {1, 1}, {2, 1}, {2, 1}),
       .bound = 1,
       .exchange = exchange_of(1, 4, 2)},
      {.name = "moe-rounds-cpu",
       .atomic_bytes = 8,
       .one_thread = true,
       .payload = Payload::special,
       .calls = calls,
       .exchange = exchange_of(1, 4, 2)},
      {.name = "moe-rounds-beside",
       .side_by_side = true,
       .calls = on_two_streams(moe_in_rounds({routings[0]}, {1, 1}, {2, 1}, {2, 1})),
       .bound = 1,
       .exchange = exchange_of(1, 4, 2)},
      {.name = "moe-ring-rounds",
       .payload = Payload::special,
       .calls = moe_in_rounds({routings[0]}, {1, 1}, {2, 1}, {2, 1}),
       .exchange = on_ring(exchange_of(1, 4, 2))},
      {.name = "moe-ring-rounds-cpu",
       .atomic_bytes = 8,
       .one_thread = true,
       .payload = Payload::special,
       .calls = moe_in_rounds({routings[0], routings[1], {{0, -1}, {-1, 3}}}, {1, 1}, {}, {}),
       .bound = 1,
       .exchange = on_ring(exchange_of(1, 4, 2))},
  };
}

std::vector<Setup> large_round_setups() {
  std::vector<Setup> setups;
  for (const unsigned ranks : {2u, 3u, 4u}) {
    // The first rank has three experts, the others have two. The last one is on the last rank.
    const auto last = static_cast<int>(2 * ranks);
    const std::vector<Routing> routings{{{0, 1, last, 2}, {1, 1, last, last - 1}, {}},
                                        {{2, -1}, {last, last, last - 1, 0}, {-1, 1}},
                                        {{last - 1, last, 2, 1}}};
    const auto add = [&](const char* name, Setup setup) {
      setup.name = fmt::format("moe-rounds-{}-ranks{}", name, ranks);
      setup.ranks = ranks;
      setup.payload = Payload::special;
      if (!setup.has_exchange()) setup.exchange = exchange_of(2, 2 * ranks + 1, 2);
      setups.push_back(std::move(setup));
    };
    add("each", {.calls = moe_in_rounds(routings, {1, 1, 1}, {3, 2}, {2, 2})});
    add("uneven",
        {.atomic_bytes = 8, .start_epoch = 0xfffffffeu, .calls = moe_in_rounds(routings, {0, 2, 1}, {2, 1}, {3, 2})});
    add("cpu", {.atomic_bytes = 8, .one_thread = true, .calls = moe_in_rounds(routings, {2, 1}, {}, {})});
    add("beside", {.side_by_side = true, .calls = on_two_streams(moe_in_rounds(routings, {1, 2}, {2, 2}, {2, 1}))});
    for (const RowLayout layout : {RowLayout::expert_contiguous, RowLayout::rank_major}) {
      const bool by_rank = layout == RowLayout::rank_major;
      MoeExchangeArgs args = exchange_of(2, 2 * ranks + 1, 2);
      args.layout = layout;
      args.alignment = by_rank ? 1 : 3;
      args.capacity = by_rank ? 0 : 7;
      args.overflow = Overflow::drop;
      add(by_rank ? "by-rank" : "contiguous",
          {.calls = moe_in_rounds(routings, {1, 1, 1}, {2, 2}, {2, 2}), .exchange = args});
    }
  }
  for (const unsigned ranks : {2u, 3u}) {
    const auto last = static_cast<int>(2 * ranks);
    const std::vector<Routing> routings{{{0, 1, last, 2}, {1, -1, last, last - 1}, {}}, {{last, 0}, {-1, 1, 2, 0}}};
    const auto add = [&](const char* name, Setup setup) {
      setup.name = fmt::format("moe-ring-rounds-{}-ranks{}", name, ranks);
      setup.ranks = ranks;
      setup.payload = Payload::special;
      if (!setup.has_exchange()) setup.exchange = on_ring(exchange_of(2, 2 * ranks + 1, 2));
      setups.push_back(std::move(setup));
    };
    add("each", {.start_epoch = 0xfffffffeu, .calls = moe_in_rounds(routings, {1, 1, 1}, {2, 1}, {2, 2})});
    add("beside", {.side_by_side = true, .calls = on_two_streams(moe_in_rounds(routings, {1, 2}, {3, 1}, {2, 1}))});
    MoeExchangeArgs by_rank = exchange_of(2, 2 * ranks + 1, 2), contiguous = by_rank;
    by_rank.layout = RowLayout::rank_major;
    by_rank.capacity = 0;
    contiguous.layout = RowLayout::expert_contiguous;
    contiguous.alignment = 3;
    contiguous.capacity = 7;
    contiguous.overflow = Overflow::drop;
    add("by-rank", {.calls = moe_in_rounds(routings, {0, 2, 1}, {2, 2}, {2, 2}), .exchange = on_ring(by_rank)});
    add("contiguous", {.calls = moe_in_rounds(routings, {1, 1, 1}, {2, 2}, {2, 2}), .exchange = on_ring(contiguous)});
  }
  // Warps with several rows in a round, and entries to count before them.
  MoeExchangeArgs many = on_ring(exchange_of(4, 4, 2));
  many.layout = RowLayout::expert_contiguous;
  setups.push_back({.name = "moe-ring-rounds-many",
                    .payload = Payload::special,
                    .calls = moe_in_rounds({{{3, 2, 2, 3, 0, 2, 3, 1}, {1, 0, 0, -1, 1, 2}}}, {1, 1}, {2, 2}, {2, 2}),
                    .exchange = many});
  // A peer may make all rounds in one launch, with blocks that only send.
  std::vector<CallSetup> at_once =
      moe_calls({{{3, 2, 0, 1}, {1, -1}}, {{3, 1}, {0, 0, 2, 3}}}, {{2, 2}, {3, 1, false, 1}});
  for (CallSetup& call : at_once) call.rounds = {1, 1};
  setups.push_back({.name = "moe-ring-rounds-joined",
                    .payload = Payload::special,
                    .calls = at_once,
                    .exchange = on_ring(exchange_of(2, 4, 2))});
  // Lanes that share a scale: scales go behind the routing that has gone before.
  MoeExchangeArgs scales = on_ring(exchange_of(1, 4, 2));
  scales.hidden = kScaleColumns;
  scales.cast = RowCast::fp8;
  setups.push_back({.name = "moe-ring-rounds-cast",
                    .lanes = 8,
                    .payload = Payload::special,
                    .calls = moe_in_rounds({{{3, 2}, {1, -1}}}, {1, 1}, {2, 8}, {2, 8}),
                    .exchange = scales});
  // One expert is on both ranks. Joined calls send in the order of rounds, and a peer may take them apart.
  MoeExchangeArgs replicas = exchange_of(2, 3, 2);
  replicas.ranks_of_expert = {{0, 1}, {1}, {0, 1}};
  setups.push_back(
      {.name = "moe-rounds-replicas",
       .payload = Payload::special,
       .calls = moe_in_rounds({{{0, 1, 0, 2}, {0, 0, 2, 1}}, {{}, {2, 0, 2, 0}}}, {1, 1, 1}, {2, 2}, {3, 1}),
       .exchange = replicas});
  std::vector<CallSetup> joined = moe_calls({{{3, 2, 0, 1}, {1, -1}}, {{3, 1}, {0, 0, 2, 3}}}, {{2, 2}, {3, 1}});
  for (CallSetup& call : joined) call.rounds = {1, 1};
  setups.push_back(
      {.name = "moe-rounds-joined", .payload = Payload::special, .calls = joined, .exchange = exchange_of(2, 4, 2)});
  // Warps of several lanes, some of which share a row.
  for (const unsigned lanes : {2u, 8u}) {
    MoeExchangeArgs wide = exchange_of(2, 6, 3);
    wide.hidden = 16 * lanes;
    setups.push_back({.name = fmt::format("moe-rounds-lanes{}", lanes),
                      .lanes = lanes,
                      .payload = Payload::special,
                      .calls = moe_in_rounds({{{0, 5, 3, 4, 2, 5}, {5, 1, -1}}}, {1, 1, 1}, {2, lanes}, {2, 2 * lanes}),
                      .exchange = wide});
  }
  return setups;
}

}  // namespace weft::sim
