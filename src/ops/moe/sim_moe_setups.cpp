// Set-ups of dispatch and combine. Rows are as short as the formats allow: one pack for rows kept bit for bit, eight
// with one scale for rows that are cast.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "ops/moe/exchange.hpp"
#include "sim/setup.hpp"

namespace weft::sim {
namespace {

MoeExchangeArgs cast(RowCast how, std::uint32_t tokens, std::uint32_t experts, std::uint32_t top_k) {
  MoeExchangeArgs args = exchange_of(tokens, experts, top_k);
  args.hidden = kScaleColumns;
  args.cast = how;
  return args;
}

// The first expert is on every rank, the others are on one: experts of a rank are not in the order of ids.
MoeExchangeArgs with_replicas(unsigned ranks) {
  MoeExchangeArgs args = exchange_of(2, 3, 2);
  args.ranks_of_expert = {{}, {ranks - 1}, {0, 1}};
  for (unsigned rank = 0; rank < ranks; ++rank) args.ranks_of_expert[0].push_back(rank);
  return args;
}

// One warp of each block sends and the others receive; lanes combine two packs at once.
std::vector<CallSetup> in_roles(std::vector<CallSetup> calls) {
  for (CallSetup& call : calls) {
    for (Grid& grid : call.grids) {
      grid.senders = 1;
      grid.pairs = true;
    }
  }
  return calls;
}

}  // namespace

MoeExchangeArgs exchange_of(std::uint32_t tokens, std::uint32_t experts, std::uint32_t top_k) {
  return {.tokens = tokens, .hidden = 8, .experts = experts, .top_k = top_k, .capacity = tokens * experts * top_k};
}

std::vector<CallSetup> beside_each_other(std::vector<CallSetup> calls, int handles) {
  for (int call = 0; call < static_cast<int>(calls.size()); ++call) {
    const bool dispatches = calls[static_cast<std::size_t>(call)].moving == Moving::dispatch;
    calls[static_cast<std::size_t>(call)].after = dispatches ? std::max(call - 2 * handles + 1, -1) : call - 1;
  }
  return calls;
}

std::vector<CallSetup> telling_counts(std::vector<CallSetup> calls) {
  for (CallSetup& call : calls) call.symmetric = call.moving == Moving::dispatch;
  return calls;
}

MoeExchangeArgs weighed_late(MoeExchangeArgs args) {
  args.weights_at_combine = true;
  return args;
}

std::vector<CallSetup> moe_calls(const std::vector<Routing>& routings, const std::vector<Grid>& grids) {
  std::vector<CallSetup> calls;
  for (const Routing& ids : routings) {
    const auto dispatch = static_cast<int>(calls.size());
    calls.push_back({.grids = grids, .moving = Moving::dispatch, .ids = ids});
    calls.push_back({.grids = grids, .group = 1, .moving = Moving::combine, .of = dispatch});
  }
  return calls;
}

std::vector<CallSetup> moe_apart(const std::vector<Routing>& routings, Grid of_send, Grid of_wait) {
  using detail::kSend, detail::kWait, detail::Phases;
  std::vector<CallSetup> calls;
  const auto add = [&](unsigned group, Phases phases, int of, const Routing& ids) {
    calls.push_back({.grids = {phases == kSend ? of_send : of_wait},
                     .group = group,
                     .moving = group == 0 ? Moving::dispatch : Moving::combine,
                     .ids = ids,
                     .phases = phases,
                     .of = of});
    return static_cast<int>(calls.size()) - 1;
  };
  int combine = -1;
  for (const Routing& ids : routings) {
    const int dispatch = add(0, kSend, -1, ids);
    if (combine >= 0) add(1, kWait, combine, {});
    add(0, kWait, dispatch, {});
    combine = add(1, kSend, dispatch, {});
  }
  add(1, kWait, combine, {});
  return calls;
}

// One token on each of two ranks, which have one expert each.
std::vector<Setup> small_moe_setups() {
  const std::vector<CallSetup> rounds = moe_calls({{{1}, {0}}, {{1}, {-1}}, {{0}, {0}}});
  const std::vector<CallSetup> two_rounds = moe_calls({{{1}, {0}}, {{1}, {}}});
  constexpr Payload special = Payload::special;
  return {
      {.name = "moe-exact", .payload = special, .calls = rounds, .exchange = exchange_of(1, 2, 1)},
      {.name = "moe-exact-torn8",
       .atomic_bytes = 8,
       .payload = special,
       .calls = rounds,
       .bound = 1,
       .exchange = exchange_of(1, 2, 1)},
      {.name = "moe-exact-cpu",
       .atomic_bytes = 8,
       .one_thread = true,
       .payload = special,
       .calls = rounds,
       .exchange = exchange_of(1, 2, 1)},
      // The host's words have stamps on both sides of the epochs' wrap.
      {.name = "moe-host-counts",
       .atomic_bytes = 8,
       .start_epoch = 0xfffffffeu,
       .calls = telling_counts(two_rounds),
       .bound = 1,
       .symmetric_bytes = 3 * sizeof(std::uint64_t),
       .exchange = exchange_of(1, 2, 1)},
      {.name = "moe-cast", .calls = two_rounds, .bound = 1, .exchange = cast(RowCast::fp8, 1, 2, 1)},
      {.name = "moe-beside",
       .side_by_side = true,
       .payload = special,
       .calls = beside_each_other(rounds, 2),
       .bound = 1,
       .exchange = exchange_of(1, 2, 1)},
      {.name = "moe-apart",
       .payload = special,
       .calls = moe_apart({{{1}, {0}}, {{1}, {-1}}, {{0}, {0}}}, {2, 1}, {2, 1}),
       .bound = 1,
       .exchange = exchange_of(1, 2, 1)},
      {.name = "moe-wrap31",
       .start_epoch = 0x7ffffffeu,
       .calls = moe_calls({{{1}, {}}, {{}, {0}}, {{}, {}}, {{1}, {0}}}),
       .bound = 1,
       .exchange = exchange_of(2, 2, 1)},
      // Blocks of two threads.
      {.name = "moe-threads",
       .payload = special,
       .calls = moe_calls({{{1, 0}, {0, 1}}}, {{2, 2}}),
       .bound = 1,
       .exchange = exchange_of(2, 2, 1)},
      // So many warps that one thread enters for all of them.
      {.name = "moe-many-warps",
       .payload = special,
       .calls = moe_calls({{{1}, {0}}, {{0}, {}}}, {{2, 5}}),
       .bound = 1,
       .exchange = exchange_of(1, 2, 1)},
      {.name = "moe-lanes2",
       .lanes = 2,
       .calls = moe_calls({{{1}, {0}}}, {{2, 2}}),
       .bound = 1,
       .exchange = exchange_of(1, 2, 1)},
      {.name = "moe-weights", .calls = rounds, .bound = 1, .exchange = weighed_late(exchange_of(1, 2, 1))},
      {.name = "moe-weights-cpu",
       .atomic_bytes = 8,
       .one_thread = true,
       .payload = special,
       .calls = rounds,
       .exchange = weighed_late(exchange_of(1, 2, 1))},
      {.name = "moe-weights-apart",
       .calls = moe_apart({{{1}, {0}}, {{1}, {-1}}, {{0}, {0}}}, {2, 1}, {2, 1}),
       .bound = 1,
       .exchange = weighed_late(exchange_of(1, 2, 1))},
      {.name = "moe-weights-wrap31",
       .start_epoch = 0x7ffffffeu,
       .calls = moe_calls({{{1}, {}}, {{}, {0}}, {{}, {}}, {{1}, {0}}}),
       .bound = 1,
       .exchange = weighed_late(exchange_of(2, 2, 1))},
      // A lane has several entries, and a token several for one rank.
      {.name = "moe-weights-lanes2",
       .lanes = 2,
       .calls = moe_calls({{{3, 0, 2}, {1, 3, -1}}}, {{2, 2}}),
       .bound = 1,
       .exchange = weighed_late(exchange_of(1, 4, 3))},
  };
}

namespace {

// Warps of several lanes, among two ranks.
std::vector<Setup> moe_setups_with_lanes() {
  std::vector<Setup> setups;
  const auto add = [&](unsigned lanes, const char* name, Setup setup) {
    setup.name = fmt::format("moe-lanes{}-{}", lanes, name);
    setup.lanes = lanes;
    setup.payload = Payload::special;
    setups.push_back(std::move(setup));
  };
  // More entries than two lanes, two of them possibly alike, and more experts of a rank; several warps for a row, and
  // several rows for a warp.
  for (const RowLayout layout : {RowLayout::expert_masked, RowLayout::expert_contiguous, RowLayout::rank_major}) {
    const bool contiguous = layout == RowLayout::expert_contiguous;
    MoeExchangeArgs args = exchange_of(2, 6, 3);
    args.layout = layout;
    args.alignment = contiguous ? 2 : 1;
    args.capacity = contiguous ? 9 : layout == RowLayout::rank_major ? 0 : 3;
    args.overflow = Overflow::drop;
    const char* const how = contiguous ? "contiguous" : layout == RowLayout::rank_major ? "by-rank" : "masked";
    const std::vector<Routing> routings{{{0, 5, 3, 4, 2, 5}, {5, 1, -1}}, {{}, {2, 2, 5, -1, 4, 5}}};
    add(2, how, {.calls = moe_calls(routings, {{2, 4}, {3, 2}}), .exchange = args});
    add(8, how, {.calls = moe_calls({routings[0]}, {{2, 8}, {2, 16}}), .exchange = args});
  }
  // So many entries that neighbouring lanes count them together.
  Routing many(2);
  for (int i = 0; i < 33; ++i) many[0].push_back(i % 2);
  many[1] = {1, 0};
  add(2, "many", {.calls = moe_calls({many}, {{2, 4}}), .exchange = exchange_of(33, 2, 1)});
  // Scales in columns: for each of two experts, and for all rows together, as bytes of a word that is not full.
  MoeExchangeArgs columns = cast(RowCast::fp8, 1, 4, 2);
  columns.hidden = 2 * kScaleColumns;
  columns.scale_order = ScaleOrder::columns;
  columns.capacity = 4;
  const std::vector<CallSetup> to_all = moe_calls({{{3, 2}, {0, 3}}}, {{2, 8}});
  add(8, "columns-masked", {.calls = to_all, .exchange = columns});
  columns.cast = RowCast::fp8_ue8m0;
  columns.hidden = 3 * kScaleColumns;
  columns.layout = RowLayout::expert_contiguous;
  add(8, "columns-contiguous", {.calls = to_all, .exchange = columns});
  // Lanes that share a scale, and a lane that looks at the columns of two scales.
  MoeExchangeArgs scales = cast(RowCast::fp8, 1, 2, 1);
  scales.hidden = 2 * kScaleColumns;
  add(8, "cast", {.calls = moe_calls({{{1}, {0}}, {{0}, {}}}, {{2, 8}, {2, 16}}), .exchange = scales});
  add(2, "cast", {.calls = moe_calls({{{1}, {0}}, {{1}, {}}}, {{2, 2}, {2, 4}}), .exchange = scales});
  scales.cast = RowCast::fp8_ue8m0;
  add(8, "ue8m0", {.calls = moe_calls({{{1}, {0}}}, {{2, 8}, {2, 16}}), .exchange = scales});
  for (const unsigned lanes : {2u, 8u}) {
    // Each warp gets one and a half pairs of packs.
    MoeExchangeArgs wide = exchange_of(2, 3, 2);
    wide.hidden = 24 * lanes;
    add(lanes, "roles",
        {.calls = in_roles(moe_calls({{{0, 1, 0, 2}, {0, 0, 2, 1}}, {{}, {2, 0, 2, 0}}}, {{2, 2 * lanes}, {3, lanes}})),
         .exchange = wide});
    add(lanes, "replicas",
        {.calls = moe_calls({{{0, 1, 0, 2}, {0, 0, 2, 1}}, {{}, {2, 0, 2, 0}}}, {{2, 2 * lanes}, {3, lanes}}),
         .exchange = with_replicas(2)});
  }
  // Each rank has its own roles: several warps that send, or one; as many as the block has, which then all do both;
  // none. Also two packs at once without roles.
  MoeExchangeArgs packs = exchange_of(2, 3, 2);
  packs.hidden = 48;
  std::vector<CallSetup> several = moe_calls({{{0, 1, 0, 2}, {0, 2}}, {{2, 0}, {2, 1, 1, 0}}});
  const Grid all_send{.blocks = 3, .threads = 4, .senders = 2};
  several[0].grids = {{.blocks = 2, .threads = 10, .senders = 2}, all_send};
  several[1].grids = {{.blocks = 2, .threads = 8, .senders = 2, .pairs = true},
                      {.blocks = 2, .threads = 4, .pairs = true}};
  several[2].grids = {{.blocks = 3, .threads = 4, .senders = 1}, {.blocks = 2, .threads = 8, .senders = 3}};
  several[3].grids = {all_send, {.blocks = 2, .threads = 10, .senders = 3, .pairs = true}};
  add(2, "many-senders", {.calls = several, .exchange = packs});
  // Warps that share a row: first they send and receive it, then they do one of the two. If items of a row are few,
  // another warp notes the row.
  const auto sharing = [](const std::vector<Routing>& routings) {
    std::vector<CallSetup> calls = moe_calls(routings);
    for (std::size_t call = 0; call < calls.size(); ++call) {
      const unsigned senders = call < 2 ? 0 : 2;
      calls[call].grids = {{.blocks = 2, .threads = 16, .senders = senders},
                           {.blocks = 3, .threads = 8, .senders = senders}};
    }
    return calls;
  };
  packs.tokens = 1;
  add(2, "sharers", {.calls = sharing({{{0, 2}, {2, 1}}, {{1, 1}, {0, 2}}}), .exchange = packs});
  scales.cast = RowCast::fp8;
  scales.hidden = 4 * kScaleColumns;
  add(2, "sharers-cast", {.calls = sharing({{{1}, {0}}, {{1}, {1}}}), .exchange = scales});
  return setups;
}

}  // namespace

std::vector<Setup> large_moe_setups() {
  std::vector<Setup> setups;
  for (const unsigned ranks : {2u, 3u, 4u}) {
    const auto hot = static_cast<int>(ranks);  // the last of ranks + 1 experts, as the first rank has two
    // Tokens for all experts and for none, twice to one expert, to no expert, all to one expert. Grids change from call
    // to call and differ between ranks.
    std::vector<CallSetup> mixed =
        moe_calls({{{0, 1, hot, 0}, {1, 1, hot, -1}, {}}, {{}, {hot, hot, -1, -1}, {-1, 0}}, {{hot, 0, hot, 1}}});
    const std::vector<std::vector<Grid>> grids{{{3, 2}, {2, 1}}, {{2, 1}, {2, 2}}, {{3, 1}, {2, 1}}, {{2, 1}, {3, 2}}};
    for (std::size_t call = 0; call < mixed.size(); ++call) mixed[call].grids = grids[call % grids.size()];
    const auto add = [&](const char* name, Setup setup) {
      setup.name = fmt::format("moe-{}-ranks{}", name, ranks);
      setup.ranks = ranks;
      setup.payload = Payload::special;
      setup.calls = setup.calls.empty() ? mixed : setup.calls;
      if (!setup.has_exchange()) setup.exchange = exchange_of(2, ranks + 1, 2);
      setups.push_back(std::move(setup));
    };
    add("mixed", {});
    add("mixed-torn8", {.atomic_bytes = 8, .start_epoch = 0xfffffffeu});
    add("cpu", {.atomic_bytes = 8, .one_thread = true, .start_epoch = 0x7ffffffeu});
    add("beside", {.side_by_side = true, .calls = beside_each_other(mixed, 1)});
    add("weights", {.exchange = weighed_late(exchange_of(2, ranks + 1, 2))});
    add("weights-cpu", {.atomic_bytes = 8,
                        .one_thread = true,
                        .start_epoch = 0x7ffffffeu,
                        .exchange = weighed_late(exchange_of(2, ranks + 1, 2))});
    add("weights-beside", {.atomic_bytes = 8,
                           .side_by_side = true,
                           .calls = beside_each_other(mixed, 1),
                           .exchange = weighed_late(exchange_of(2, ranks + 1, 2))});
    std::vector<CallSetup> roles = mixed;
    for (CallSetup& call : roles) call.grids = {{3, 2}, {2, 3}};
    // Some ranks count in tallies, beside others that do not.
    std::vector<CallSetup> tallies = mixed;
    for (std::size_t call = 0; call < tallies.size(); ++call) {
      for (std::size_t i = 0; i < tallies[call].grids.size(); ++i) tallies[call].grids[i].tallies = (call + i) % 4 != 2;
    }
    add("tally", {.calls = tallies});
    add("tally-cpu", {.atomic_bytes = 8, .one_thread = true, .start_epoch = 0x7ffffffeu, .calls = tallies});
    MoeExchangeArgs three_packs = exchange_of(2, ranks + 1, 2);
    three_packs.hidden = 24;
    add("roles", {.calls = in_roles(roles), .exchange = three_packs});
    // One row for each expert; the hot one has too many. The last rank has no expert.
    MoeExchangeArgs drop = exchange_of(2, 2, 2);
    drop.capacity = 1;
    drop.overflow = Overflow::drop;
    for (unsigned expert = 0; expert < drop.experts; ++expert) drop.rank_of_expert.push_back(expert % (ranks - 1));
    // Aligned contiguous experts, the last of which do not fit; and a row for all experts of a rank.
    for (const RowLayout layout : {RowLayout::expert_contiguous, RowLayout::rank_major}) {
      const bool by_rank = layout == RowLayout::rank_major;
      MoeExchangeArgs args = exchange_of(2, ranks + 1, 2);
      args.layout = layout;
      args.alignment = by_rank ? 1 : 3;
      args.capacity = by_rank ? 0 : 5;
      args.overflow = Overflow::drop;
      add(by_rank ? "by-rank" : "contiguous", {.calls = mixed, .exchange = args});
    }
    // Lanes combine two packs at once without roles, because halves have no roles.
    std::vector<CallSetup> apart =
        moe_apart({{{0, 1, hot, 0}, {1, 1, hot, -1}, {}}, {{}, {hot, hot}, {-1, 0}}}, {3, 1}, {2, 2});
    for (CallSetup& call : apart) call.grids[0].pairs = true;
    add("apart", {.calls = apart, .exchange = three_packs});
    add("apart-cpu", {.atomic_bytes = 8,
                      .one_thread = true,
                      .calls = moe_apart({{{0, 1, hot, 0}, {1, 1}}, {{}, {hot, hot}}}, {}, {})});
    add("replicas", {.calls = moe_calls({{{0, 1, 0, 2}, {0, 0}, {2, 1, 2, -1}}, {{}, {2, 0, 2, 0}}, {{0, 2}}}),
                     .exchange = with_replicas(ranks)});
    // Experts' results are summed unweighted, and a residual of the token's own rank is added.
    MoeExchangeArgs unweighted = exchange_of(2, ranks + 1, 2);
    unweighted.weighted = false;
    std::vector<CallSetup> with_residuals = mixed;
    for (CallSetup& call : with_residuals) call.residual = call.moving == Moving::combine;
    add("unweighted", {.calls = with_residuals, .exchange = unweighted});
    for (CallSetup& call : with_residuals) call.in_place = call.residual;
    add("in-place", {.calls = with_residuals});
    const std::vector<CallSetup> dropped = moe_calls({{{0, 1, 0, 0}, {0, -1}}, {{}, {1, 1, 0, 1}}, {{1, 0}}});
    add("drop", {.calls = dropped, .exchange = drop});
    add("weights-drop", {.calls = dropped, .exchange = weighed_late(drop)});
  }
  setups.push_back({.name = "moe-cast-torn8",
                    .atomic_bytes = 8,
                    .payload = Payload::special,
                    .calls = moe_calls({{{1}, {0}}, {{0}, {0}}, {{1}, {}}}, {{2, 2}, {3, 1}}),
                    .exchange = cast(RowCast::fp8_ue8m0, 1, 2, 1)});
  // Every word of the masks; rows of fp8 that come with scales of their own.
  MoeExchangeArgs scales = exchange_of(1, 2, 1);
  scales.hidden = 16;
  scales.type = RowType::fp8;
  scales.scale_bytes = 4;
  setups.push_back({.name = "moe-masks",
                    .payload = Payload::special,
                    .calls = moe_calls({{{1}, {0}}, {{1}, {1}}, {{}, {0}}}),
                    .exchange = scales,
                    .empty_columns = true});
  // The same recordings with other routings in their tensors.
  std::vector<CallSetup> replays = moe_calls({{{1, 0}, {0, 0}}, {{1, 1}, {1, -1}}, {{-1, -1}, {0, 1}}});
  for (std::size_t call = 2; call < replays.size(); ++call) replays[call].replays = static_cast<int>(call % 2);
  setups.push_back({.name = "moe-replays", .calls = replays, .exchange = exchange_of(1, 2, 2)});
  // Ids of 64 bits: some have lower words that name experts, but name no expert themselves.
  constexpr std::int64_t wide = std::int64_t{1} << 32;
  std::vector<CallSetup> wide_ids = moe_calls({{{-wide, 0, wide + 1, 1}, {1, 0}}, {{wide, 2}, {0, wide}}});
  for (CallSetup& call : wide_ids) call.wide_ids = call.moving == Moving::dispatch;
  setups.push_back({.name = "moe-wide-ids", .calls = wide_ids, .exchange = exchange_of(2, 3, 2)});
  // Two dispatches, whose combines come in the other order; then two more, the first without a combine.
  std::vector<CallSetup> crossed = moe_calls({{{1}, {0}}, {{0}, {0}}});
  std::swap(crossed[1], crossed[2]);
  crossed[2].of = 1;
  crossed[3].of = 0;
  const std::vector<CallSetup> more = moe_calls({{{1}, {1}}});
  crossed.insert(crossed.end(), {more[0], more[0], more[0], more[1]});
  crossed[6].discard = true;
  crossed[7].of = 6;
  setups.push_back({.name = "moe-handles", .calls = crossed, .exchange = exchange_of(1, 2, 1)});
  std::ranges::move(moe_setups_with_lanes(), std::back_inserter(setups));
  return setups;
}

}  // namespace weft::sim
