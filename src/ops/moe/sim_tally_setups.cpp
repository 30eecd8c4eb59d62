// Set-ups of dispatches that count entries in tallies. Own rows stay out of the slots if one launch sends and receives.
// Such calls beside others: sim_moe_setups.cpp.
#include "ops/moe/exchange.hpp"
#include "sim/setup.hpp"

namespace weft::sim {
namespace {

constexpr Grid kTallies{.blocks = 2, .threads = 1, .tallies = true};

}  // namespace

std::vector<Setup> small_tally_setups() {
  return {
      // A block has several tokens, tokens have several blocks, a block has several threads.
      {.name = "moe-tally",
       .calls = moe_calls({{{1, 0, 1}, {0, 0}}}, {{.blocks = 3, .threads = 1, .tallies = true}, kTallies}),
       .bound = 1,
       .exchange = exchange_of(3, 2, 1)},
      {.name = "moe-tally-threads",
       .calls = moe_calls({{{1, 1}, {0, 1}}}, {{.blocks = 3, .threads = 2, .tallies = true}}),
       .bound = 1,
       .exchange = exchange_of(2, 2, 1)},
      // Own rows stay out of the slots, and between halves they do not.
      {.name = "moe-tally-stays",
       .payload = Payload::special,
       .calls = moe_calls({{{1, 0}, {0, 1}}, {{0}, {1, 1}}},
                          {{.blocks = 2, .threads = 3, .senders = 1, .tallies = true}, kTallies}),
       .bound = 1,
       .exchange = exchange_of(2, 2, 1)},
      {.name = "moe-tally-apart",
       .payload = Payload::special,
       .calls = moe_apart({{{1, 0}, {0, 1}}, {{0, 0}, {1}}}, kTallies, {2, 1}),
       .bound = 1,
       .exchange = exchange_of(2, 2, 1)},
  };
}

std::vector<Setup> large_tally_setups() {
  // Rows of items in two turns and a half.
  MoeExchangeArgs cast = exchange_of(2, 2, 1);
  cast.hidden = 5 * kScaleColumns;
  cast.cast = RowCast::fp8;
  constexpr Payload special = Payload::special;
  return {
      // A warp's width of entries after the other, the last one not full.
      {.name = "moe-lanes2-tally",
       .lanes = 2,
       .payload = special,
       .calls = moe_calls({{{5, 5, 3, 4, 2, 5}, {5, 1, -1}}},
                          {{.blocks = 2, .threads = 4, .tallies = true}, {.blocks = 3, .threads = 2, .tallies = true}}),
       .exchange = exchange_of(2, 6, 3)},
      {.name = "moe-lanes8-tally-cast",
       .lanes = 8,
       .payload = special,
       .calls = moe_calls({{{1, 0}, {0, 1}}, {{0}, {}}}, {{.blocks = 2, .threads = 8, .tallies = true}}),
       .exchange = cast},
      // Warps share rows, and on one rank some warps only send.
      {.name = "moe-lanes2-tally-sharers",
       .lanes = 2,
       .payload = special,
       .calls = moe_calls({{{1}, {0}}, {{0}, {1}}}, {{.blocks = 2, .threads = 16, .senders = 2, .tallies = true},
                                                     {.blocks = 3, .threads = 8, .tallies = true}}),
       .exchange = cast},
  };
}

}  // namespace weft::sim
