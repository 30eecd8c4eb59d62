// Set-ups of dispatches that are made again with the routing of an earlier one (DispatchArgs::again).
#include <fmt/format.h>

#include <utility>

#include "ops/moe/exchange.hpp"
#include "sim/setup.hpp"

namespace weft::sim {

std::vector<CallSetup> made_again(const std::vector<CallSetup>& calls, int times) {
  std::vector<CallSetup> all = calls;
  for (int round = 0; round < times; ++round) {
    for (std::size_t i = 0; i + 1 < calls.size(); i += 2) {
      CallSetup dispatch = calls[i], combine = calls[i + 1];
      dispatch.again = static_cast<int>(i);
      combine.of = static_cast<int>(all.size());
      all.push_back(std::move(dispatch));
      all.push_back(std::move(combine));
    }
  }
  return all;
}

namespace {

// With a handle slot for each of two dispatches.
MoeExchangeArgs repeatable(std::uint32_t places, std::uint32_t tokens, std::uint32_t experts, std::uint32_t top_k) {
  return {.tokens = tokens,
          .hidden = 8,
          .experts = experts,
          .top_k = top_k,
          .capacity = tokens * experts * top_k,
          .handles = 2,
          .path = RowPath::ring,
          .ring_rows = places,
          .repeatable = true};
}
MoeExchangeArgs in_layout(MoeExchangeArgs args, RowLayout layout) {
  args.layout = layout;
  args.capacity = 0;
  return args;
}

// The halves of a dispatch, and twice those of one that is made again. The send comes before the wait of the combine
// that the handle slot waits for.
std::vector<CallSetup> apart(const Routing& ids) {
  std::vector<CallSetup> calls = moe_apart({ids, ids, ids}, {2, 1}, {3, 1});
  for (std::size_t i = 1; i < calls.size(); ++i) {
    if (calls[i].moving != Moving::dispatch || !calls[i].phases.has(0)) continue;
    calls[i].again = 0;
    calls[i].discard = true;
  }
  return calls;
}

// The second dispatch's handle slot is used in between.
std::vector<CallSetup> replayed(const std::vector<Routing>& routings, const std::vector<Grid>& grids) {
  std::vector<CallSetup> calls = made_again(moe_calls({routings[0]}, grids), 1);
  const auto add = [&](CallSetup call, int replays, int of) {
    call.replays = replays;
    call.of = of;
    calls.push_back(std::move(call));
  };
  add(moe_calls({routings[1]}, grids)[0], -1, -1);
  add(calls[1], -1, 4);
  for (const int recorded : {2, 3}) add(calls[static_cast<std::size_t>(recorded)], recorded, recorded == 3 ? 2 : -1);
  return calls;
}

// Blocks of one thread: one for control, one that sends, and one that receives.
constexpr Grid kPartEach{.blocks = 3, .threads = 1, .senders = 1};

}  // namespace

// Two ranks with one expert each, and one place for each of them: every token but the first needs a credit.
std::vector<Setup> small_again_setups() {
  constexpr Payload special = Payload::special;
  // Each expert is on the other rank, then on the own one; then tokens are missing.
  const std::vector<Routing> routings{{{1, 0}, {0, 1}}, {{-1, 1}, {0}}};
  MoeExchangeArgs drops = repeatable(1, 3, 2, 2);
  drops.capacity = 1;
  drops.overflow = Overflow::drop;
  return {
      {.name = "moe-ring-again-cpu",
       .atomic_bytes = 8,
       .one_thread = true,
       .payload = special,
       .calls = made_again(moe_calls(routings), 1),
       .exchange = repeatable(1, 2, 2, 1)},
      {.name = "moe-ring-again",
       .payload = special,
       .calls = made_again(moe_calls(routings, {kPartEach}), 1),
       .bound = 1,
       .exchange = repeatable(1, 2, 2, 1)},
      // One block sends and receives.
      {.name = "moe-ring-again-both",
       .payload = special,
       .calls = made_again(moe_calls({{{1, 0, 1}, {0, 1}}}), 1),
       .bound = 1,
       .exchange = repeatable(1, 3, 2, 1)},
      // Two blocks send, in turns to one place.
      {.name = "moe-ring-again-senders",
       .payload = special,
       .calls = made_again(moe_calls({{{1, 1, 0}, {0, 1}}}, {{.blocks = 4, .threads = 1, .senders = 2}}), 1),
       .bound = 1,
       .exchange = repeatable(1, 3, 2, 1)},
      {.name = "moe-ring-again-drops",
       .payload = special,
       .calls = made_again(moe_calls({{{0, 1, 0, 1, 1, -1}, {0, 0}}}, {kPartEach}), 1),
       .bound = 1,
       .exchange = drops},
      {.name = "moe-ring-again-apart",
       .payload = special,
       .calls = apart({{1, 0}, {0, 1}}),
       .bound = 1,
       .exchange = repeatable(2, 2, 2, 1)},
      {.name = "moe-ring-again-replays",
       .payload = special,
       .calls = replayed(routings, {kPartEach}),
       .bound = 1,
       .exchange = repeatable(1, 2, 2, 1)},
      // So many that a count which is never renewed would be too old.
      {.name = "moe-ring-again-wrap31",
       .start_epoch = 0x7ffffffeu,
       .calls = made_again(moe_calls({{{1}, {0}}}, {kPartEach}), 7),
       .bound = 1,
       .exchange = repeatable(1, 1, 2, 1)},
      {.name = "moe-compact-again-wrap31",
       .start_epoch = 0x7ffffffeu,
       .calls = made_again(moe_calls({{{1}, {0}}}, {kPartEach}), 7),
       .bound = 1,
       .exchange = in_layout(repeatable(1, 1, 2, 1), RowLayout::rank_compact)},
      // Two warps of a block send.
      {.name = "moe-ring-again-threads",
       .payload = special,
       .calls = made_again(moe_calls({{{1, 1, 0, 1}, {0, 0, 1}}}, {{.blocks = 3, .threads = 2, .senders = 1}}), 1),
       .bound = 1,
       .exchange = repeatable(2, 4, 2, 1)},
  };
}

std::vector<Setup> large_again_setups() {
  std::vector<Setup> setups;
  for (const unsigned ranks : {2u, 3u}) {
    const auto hot = static_cast<int>(ranks);  // the last of ranks + 1 experts, as the first rank has two
    const Routing first{{0, 1, hot, 0, -1, -1, 1, 0, hot, hot}, {1, 1, hot, -1, 0, hot}, {}};
    const Routing second{{hot, 0}, {-1, 0, hot, 1, 0, 0, -1, hot}, {1, hot, -1, -1, 0, 1}};
    std::vector<CallSetup> mixed = made_again(moe_calls({first, second}), 2);
    const std::vector<std::vector<Grid>> grids{
        {{3, 2, false, 1}, {2, 1}, {4, 1, false, 2}}, {{2, 2}, {4, 1, false, 1}}, {{3, 2, false, 1}, {3, 1}}};
    for (std::size_t call = 0; call < mixed.size(); ++call) mixed[call].grids = grids[call % grids.size()];
    const MoeExchangeArgs args = repeatable(2, 5, ranks + 1, 2);
    const auto add = [&](const char* name, Setup setup) {
      setup.name = fmt::format("moe-ring-again-{}-ranks{}", name, ranks);
      setup.ranks = ranks;
      setup.payload = Payload::special;
      setup.calls = mixed;
      if (!setup.has_exchange()) setup.exchange = args;
      setups.push_back(std::move(setup));
    };
    add("mixed", {});
    add("cpu", {.atomic_bytes = 8, .one_thread = true, .start_epoch = 0xfffffffeu});
    add("weights", {.calls = {}, .exchange = weighed_late(args)});
    for (const RowLayout layout : {RowLayout::expert_contiguous, RowLayout::rank_major, RowLayout::rank_compact}) {
      MoeExchangeArgs placed = in_layout(args, layout);
      placed.alignment = layout == RowLayout::expert_contiguous ? 3 : 1;
      placed.capacity = layout == RowLayout::expert_contiguous ? 8 : layout == RowLayout::rank_compact ? 3 : 0;
      placed.overflow = Overflow::drop;
      add(layout == RowLayout::expert_contiguous ? "contiguous"
          : layout == RowLayout::rank_major      ? "by-rank"
                                                 : "compact",
          {.calls = {}, .exchange = placed});
    }
  }
  // Lanes share the entries of a token, which are more than two lanes, and a scale.
  MoeExchangeArgs many = repeatable(2, 2, 6, 5);
  many.hidden = 48;
  setups.push_back(
      {.name = "moe-ring-again-lanes2",
       .lanes = 2,
       .payload = Payload::special,
       .calls =
           made_again(moe_calls({{{0, 5, 3, 4, 2, 5, 1, 0, -1, 3}, {5, 1, -1, -1, 2}}}, {{2, 4}, {3, 2, false, 1}}), 1),
       .exchange = many});
  MoeExchangeArgs scales = repeatable(1, 2, 2, 1);
  scales.hidden = 2 * kScaleColumns;
  scales.cast = RowCast::fp8;
  setups.push_back({.name = "moe-ring-again-lanes8",
                    .lanes = 8,
                    .payload = Payload::special,
                    .calls = made_again(moe_calls({{{1, 1}, {0, 1}}}, {{3, 8, false, 1}}), 1),
                    .exchange = scales});
  return setups;
}

}  // namespace weft::sim
