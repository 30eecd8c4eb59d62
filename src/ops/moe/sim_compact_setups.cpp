// Set-ups of compact rows (RowLayout::rank_compact). Several experts of a token live on one rank, which gets one row.
#include <fmt/format.h>

#include "ops/moe/exchange.hpp"
#include "sim/setup.hpp"

namespace weft::sim {
namespace {

MoeExchangeArgs compact_rows(std::uint32_t places, std::uint32_t tokens, std::uint32_t experts, std::uint32_t top_k) {
  return {.tokens = tokens,
          .hidden = 8,
          .experts = experts,
          .top_k = top_k,
          .layout = RowLayout::rank_compact,
          .path = RowPath::ring,
          .ring_rows = places};
}

// Blocks of one thread: one for control, one that sends, and one that receives.
constexpr Grid kOneEach{.blocks = 3, .threads = 1, .senders = 1};

}  // namespace

// Two ranks with two experts each.
std::vector<Setup> small_compact_setups() {
  constexpr Payload special = Payload::special;
  // Tokens with both experts on one rank, with one on each, twice the same, and none.
  const std::vector<Routing> routings{{{2, 3, 0, 2}, {0, 1, 3, 3}}, {{0, 0, 1, -1}, {2, 1}}, {{-1, -1, 3, 2}, {1, 0}}};
  MoeExchangeArgs drops = compact_rows(1, 3, 4, 2);
  drops.capacity = 2;
  drops.overflow = Overflow::drop;
  return {
      {.name = "moe-compact-cpu",
       .atomic_bytes = 8,
       .one_thread = true,
       .payload = special,
       .calls = moe_calls(routings),
       .exchange = compact_rows(1, 2, 4, 2)},
      {.name = "moe-compact",
       .payload = special,
       .calls = moe_calls(routings, {kOneEach}),
       .bound = 1,
       .exchange = compact_rows(1, 2, 4, 2)},
      // One block sends and receives.
      {.name = "moe-compact-both",
       .payload = special,
       .calls = moe_calls({{{2, 3, 0, 1, 3, 0}, {1, 0, 2, -1}}}),
       .exchange = compact_rows(1, 3, 4, 2)},
      // Two warps of a block share the tally of its tokens' rows.
      {.name = "moe-compact-threads",
       .payload = special,
       .calls = moe_calls({{{3, 2, 2, 0, 1, 3, 2, 2}, {0, 1, 1, 3}}}, {{.blocks = 3, .threads = 2, .senders = 1}}),
       .bound = 1,
       .exchange = compact_rows(2, 4, 4, 2)},
      {.name = "moe-compact-apart",
       .payload = special,
       .calls = moe_apart({{{2, 3, 0, 2}, {0, 1}}, {{-1, -1}, {3, 1, 0, 0}}, {{1, 2}, {2, 0}}}, {2, 1}, {3, 1}),
       .bound = 1,
       .exchange = compact_rows(2, 2, 4, 2)},
      {.name = "moe-compact-host-counts",
       .atomic_bytes = 8,
       .calls = telling_counts(moe_calls({routings[0], routings[1]}, {kOneEach})),
       .bound = 1,
       .symmetric_bytes = 6 * sizeof(std::uint64_t),
       .exchange = compact_rows(1, 2, 4, 2)},
      // A rank returns rows as they are, and zeros for those that had no room.
      {.name = "moe-compact-drops",
       .payload = special,
       .calls = moe_calls({{{2, 3, 2, -1, 3, 0}, {2, 0, 1, 3}}, {{0, 1, 1, 1, 0, -1}, {1, 2, 2, 3}}}, {kOneEach}),
       .bound = 1,
       .exchange = drops},
      {.name = "moe-compact-wrap31",
       .start_epoch = 0x7ffffffeu,
       .calls = moe_calls({{{2, 3}, {}}, {{}, {0, 3}}, {{1, 3}, {2, 2}}}, {kOneEach}),
       .bound = 1,
       .exchange = compact_rows(1, 1, 4, 2)},
      {.name = "moe-compact-lanes2",
       .lanes = 2,
       .calls = moe_calls({{{2, 3, 0, 3, 1}, {0, 1, 2, 2, -1}}}, {{.blocks = 3, .threads = 2, .senders = 1}}),
       .bound = 1,
       .exchange = compact_rows(1, 1, 4, 5)},
  };
}

std::vector<Setup> large_compact_setups() {
  std::vector<Setup> setups;
  for (const unsigned ranks : {2u, 3u, 4u}) {
    const auto hot = static_cast<int>(ranks);  // the second one of rank 0
    const Routing first{{0, 1, hot, 0, -1, -1, 1, 0, hot, hot}, {1, 1, hot, -1, 0, hot}, {}};
    const Routing second{{hot, 0}, {-1, 0, hot, 1, 0, 0, -1, hot}, {1, hot, -1, -1, 0, 1}};
    std::vector<CallSetup> mixed = moe_calls({first, second, {{hot, 0, hot, 1, 0, 1}}});
    const std::vector<std::vector<Grid>> grids{{{3, 2, false, 1}, {2, 1}, {4, 1, false, 2}},
                                               {{2, 2}, {4, 1, false, 1}},
                                               {{3, 2, false, 1}, {3, 1}},
                                               {{4, 1, false, 2}, {2, 2}, {3, 1, false, 1}}};
    for (std::size_t call = 0; call < mixed.size(); ++call) mixed[call].grids = grids[call % grids.size()];
    MoeExchangeArgs args = compact_rows(2, 5, ranks + 1, 2);
    for (unsigned rank = 0; rank < ranks; ++rank) args.rank_of_expert.push_back(rank);
    args.rank_of_expert.push_back(0);
    const auto add = [&](const char* name, Setup setup) {
      setup.name = fmt::format("moe-compact-{}-ranks{}", name, ranks);
      setup.ranks = ranks;
      setup.payload = Payload::special;
      if (setup.calls.empty()) setup.calls = mixed;
      if (!setup.has_exchange()) setup.exchange = args;
      setups.push_back(std::move(setup));
    };
    add("mixed", {});
    add("cpu", {.atomic_bytes = 8, .one_thread = true, .start_epoch = 0xfffffffeu});
    if (ranks == 4) continue;
    MoeExchangeArgs drops = args;
    drops.capacity = 3;
    drops.overflow = Overflow::drop;
    add("drops", {.atomic_bytes = 8, .calls = {}, .exchange = drops});
    add("beside", {.side_by_side = true, .calls = beside_each_other(mixed, 2)});
    MoeExchangeArgs replicas = compact_rows(2, 5, 3, 2);
    replicas.ranks_of_expert = {{}, {ranks - 1}, {0, 1}};
    for (unsigned rank = 0; rank < ranks; ++rank) replicas.ranks_of_expert[0].push_back(rank);
    add("replicas", {.calls = moe_calls({{{0, 1, 0, 2, 0, 0, 2, 1}, {0, 0, 2, 1, 2, -1}}, {{}, {2, 0, 2, 0, 1, 0}}},
                                        {{3, 2, false, 1}, {2, 2}}),
                     .exchange = replicas});
  }
  // More entries than a thread loads at once, and than there are lanes. One rank has a block for either half.
  for (const unsigned lanes : {2u, 8u}) {
    Routing many(2);
    for (int i = 0; i < 36; ++i) many[0].push_back(i * 7 % 11 % 6);
    many[1] = {0, 1, 2, 0, 1, 2, 2, 2, 0};
    setups.push_back({.name = fmt::format("moe-compact-lanes{}-many", lanes),
                      .lanes = lanes,
                      .payload = Payload::special,
                      .calls = moe_calls({many}, {{2, 2 * lanes}, {3, lanes, false, 1}}),
                      .exchange = compact_rows(2, 4, 6, 9)});
  }
  return setups;
}

}  // namespace weft::sim
