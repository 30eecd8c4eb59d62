// The grids that Weft chooses for dispatch and combine.
#include <gtest/gtest.h>

#include "ops/moe/exchange_grid.hpp"
#include "ops/moe/exchange_shape.hpp"
#include "support/moe_batches.hpp"

namespace weft::detail {
namespace {

ExchangeShape shape_of(const MoeExchangeArgs& args, std::uint32_t ranks) {
  return make_shape(ranks, 0, args, map_experts(ranks, args));
}

// DeepSeek-V3 on 8 ranks with 133 blocks. Each rank has as many tokens as this one, and knows it.
struct Grids {
  ExchangeShape shape = shape_of({.tokens = 128, .hidden = 7168, .experts = 256, .top_k = 8, .cast = RowCast::fp8}, 8);
  std::uint32_t ranks = 8;
  ExchangeGridArgs args(std::uint32_t tokens, Phases phases = kJoined, Launch launch = {}) const {
    return {.shape = shape,
            .ranks = ranks,
            .tokens = tokens,
            .most_tokens = tokens,
            .ring = shape.ring_rows != 0,
            .phases = phases,
            .launch = launch,
            .most_blocks = 133};
  }
};

void expect_grid(const ExchangeGrid& grid, int blocks, int threads) {
  EXPECT_EQ(grid.blocks, blocks);
  EXPECT_EQ(grid.threads, threads);
}

// A token's row goes to 8 ranks. For each, 14 warps move 448 packs and one warp records the row: 120 warps, in blocks
// of 4 while there are processors. A combine adds 896 packs with 28 warps.
TEST(MoeGrid, FollowsTheTokensOfTheCall) {
  const Grids of;
  expect_grid(dispatch_grid(of.args(1)), 30 + 1, 128);
  expect_grid(dispatch_grid(of.args(4)), 120 + 1, 128);
  expect_grid(dispatch_grid(of.args(5)), 75 + 1, 256);
  expect_grid(dispatch_grid(of.args(128)), 133, 512);
  expect_grid(combine_grid(of.args(1)), 56 + 1, 128);
  expect_grid(combine_grid(of.args(128)), 133, 512);
}

// Other ranks may send it the largest possible number of rows, however few tokens it has.
TEST(MoeGrid, IsForAllThatOthersMayHaveIfTheMostTokensAreNotKnown) {
  MoeExchangeArgs prefill{.tokens = 4096, .hidden = 7168, .experts = 256, .top_k = 8, .cast = RowCast::fp8};
  for (const Grids& of : {Grids{}, Grids{shape_of(prefill, 8)}}) {
    for (const std::uint32_t tokens : {0u, 1u}) {
      ExchangeGridArgs args = of.args(tokens), most = of.args(of.shape.tokens);
      args.most_tokens = 0;
      for (const Phases phases : {kJoined, kWait}) {
        args.phases = most.phases = phases;
        expect_grid(dispatch_grid(args), dispatch_grid(most).blocks, dispatch_grid(most).threads);
      }
      args.phases = most.phases = kJoined;
      expect_grid(combine_grid(args), combine_grid(most).blocks, combine_grid(most).threads);
    }
  }
}

// A rank with few tokens has few warps that send, and many that receive.
TEST(MoeGrid, OfARingReceivesWhatOthersMayHave) {
  MoeExchangeArgs exchange{.tokens = 4096, .hidden = 7168, .experts = 256, .top_k = 8, .cast = RowCast::fp8};
  const Grids of{shape_of(exchange, 2), 2};
  ExchangeGridArgs args = of.args(1);
  args.most_tokens = 0;
  expect_grid(dispatch_grid(args), 132, 512);
  EXPECT_EQ(dispatch_grid(args).senders, 1u);
  expect_grid(combine_grid(args), 132, 512);
  EXPECT_EQ(combine_grid(args).senders, 4096u / 4 / 2);  // two rounds of four warps each
}

// Others may have more tokens than this one. A grid for their rows is as large on every rank.
TEST(MoeGrid, IsForTheMostTokensIfTheyAreKnown) {
  const Grids of;
  for (const std::uint32_t tokens : {0u, 1u, 4u}) {
    ExchangeGridArgs args = of.args(tokens);
    args.most_tokens = 4;
    expect_grid(dispatch_grid(args), 120 + 1, 128);
    expect_grid(combine_grid(args), combine_grid(of.args(4)).blocks, combine_grid(of.args(4)).threads);
  }
}

// By the slots of an exchange with a ring it is that of slots.
TEST(MoeGrid, BesideARingIsThatOfSlots) {
  const Grids of{shape_of({.tokens = 4096, .hidden = 7168, .experts = 256, .top_k = 8, .cast = RowCast::fp8}, 8)};
  ExchangeGridArgs args = of.args(1);
  args.ring = false;
  args.most_tokens = 1;
  expect_grid(dispatch_grid(args), 30 + 1, 128);
  expect_grid(combine_grid(args), 56 + 1, 128);
}

// A launch that sends 3072 entries or more counts them in tallies, if these have a counter for each replica.
TEST(MoeGrid, CountsManyEntriesInTallies) {
  const Grids of;
  EXPECT_FALSE(dispatch_grid(of.args(383)).tallies);
  EXPECT_TRUE(dispatch_grid(of.args(384)).tallies);
  EXPECT_TRUE(dispatch_grid(of.args(384, kSend)).tallies);
  EXPECT_FALSE(dispatch_grid(of.args(384, kWait)).tallies);
  for (const std::uint32_t experts : {1024u, 1025u}) {
    const Grids many{shape_of({.tokens = 384, .hidden = 7168, .experts = experts, .top_k = 8}, 8)};
    EXPECT_EQ(dispatch_grid(many.args(384)).tallies, experts == 1024);
  }
}

// Between two ranks half of the rows are own ones, and stay out of the slots: so a joined launch counts in tallies
// earlier, and a quarter of its warps only send.
TEST(MoeGrid, OfTwoRanksCountsInTalliesEarlier) {
  Grids two;
  two.ranks = 2;
  EXPECT_FALSE(dispatch_grid(two.args(191)).tallies);
  EXPECT_EQ(dispatch_grid(two.args(191)).senders, 0u);
  EXPECT_TRUE(dispatch_grid(two.args(192)).tallies);
  EXPECT_EQ(dispatch_grid(two.args(192)).senders, 4u);
  EXPECT_EQ(dispatch_grid(two.args(192, kJoined, {.threads = 64})).senders, 0u);
  ExchangeGridArgs in_rounds = two.args(192);
  in_rounds.rounds = true;
  EXPECT_FALSE(dispatch_grid(in_rounds).tallies);
  EXPECT_EQ(dispatch_grid(in_rounds).senders, 0u);
  EXPECT_FALSE(dispatch_grid(two.args(383, kSend)).tallies);
  EXPECT_TRUE(dispatch_grid(two.args(384, kSend)).tallies);
  EXPECT_EQ(dispatch_grid(two.args(384, kSend)).senders, 0u);
}

// A separate send has no warp that could receive meanwhile. Between two ranks combine has little to send.
TEST(MoeGrid, HasWarpsThatOnlySendWhereRowsAreMany) {
  const Grids of;
  EXPECT_EQ(dispatch_grid(of.args(511)).senders, 0u);
  EXPECT_EQ(dispatch_grid(of.args(512)).senders, 2u);
  EXPECT_EQ(combine_grid(of.args(127)).senders, 0u);
  EXPECT_EQ(combine_grid(of.args(128)).senders, 8u);
  EXPECT_EQ(combine_grid(of.args(128, kJoined, {.threads = 64})).senders, 1u);
  EXPECT_EQ(combine_grid(of.args(128, kJoined, {.threads = 32})).senders, 0u);
  ExchangeGridArgs two = of.args(1024);
  two.ranks = 2;
  EXPECT_EQ(combine_grid(two).senders, 0u);
  for (const Phases phases : {kSend, kWait}) {
    EXPECT_EQ(dispatch_grid(of.args(1024, phases)).senders, 0u);
    EXPECT_EQ(combine_grid(of.args(1024, phases)).senders, 0u);
  }
  EXPECT_FALSE(combine_grid(of.args(63)).pairs);
  EXPECT_TRUE(combine_grid(of.args(64)).pairs);
}

// A send without tokens sends the counts of 256 experts, four at a time.
TEST(MoeGrid, OfASendIsForWhatIsSent) {
  const Grids of;
  expect_grid(dispatch_grid(of.args(0, kSend)), 16 + 1, 128);
  expect_grid(dispatch_grid(of.args(2, kSend)), 24 + 1, 128);
}

// A ring has a block for each processor at most, of 768 threads where blocks are few, and a control group of 128.
TEST(MoeGrid, OfARingFillsProcessors) {
  MoeExchangeArgs exchange{.tokens = 4096, .hidden = 7168, .experts = 256, .top_k = 8, .cast = RowCast::fp8};
  const Grids of{shape_of(exchange, 8)};
  const auto args = [&](std::uint32_t tokens, Phases phases, Launch launch) { return of.args(tokens, phases, launch); };
  const ExchangeGrid all = dispatch_grid(args(4096, kJoined, {}));
  expect_grid(all, 132, 512);
  EXPECT_EQ(all.warp_groups, 4u);
  EXPECT_EQ(all.senders, 4096u / 4 / 4);  // four rounds of four warps each
  const ExchangeGrid few = dispatch_grid(args(4096, kJoined, {.blocks = 8}));
  expect_grid(few, 8, 768);
  EXPECT_EQ(few.senders, (8u * 6 - 1) * 44 / 100);  // a row is sent to 7 others, and 7 of them come
  expect_grid(combine_grid(args(4096, kJoined, {.blocks = 8})), 8, 512);
  EXPECT_EQ(combine_grid(args(4096, kJoined, {.blocks = 8})).senders, (8u * 4 - 1) * 14 / 23);
  expect_grid(dispatch_grid(args(1, kJoined, {})), 2, 768);
  EXPECT_EQ(dispatch_grid(args(512, kSend, {})).senders, 0u);
  expect_grid(dispatch_grid(args(512, kJoined, {.blocks = 5, .threads = 256})), 5, 256);
}

// If warps have few rows each, a part of a round takes as long as a whole one.
TEST(MoeGrid, OfARingHasWholeRounds) {
  MoeExchangeArgs exchange{.tokens = 2048, .hidden = 7168, .experts = 256, .top_k = 8, .cast = RowCast::fp8};
  const Grids of{shape_of(exchange, 2), 2};
  const auto args = [&](std::uint32_t tokens) { return of.args(tokens); };
  EXPECT_EQ(dispatch_grid(args(1024)).senders, 1024u / 4);  // a row for each of their warps, and for each receiver
  EXPECT_EQ(combine_grid(args(1024)).senders, 1024u / 4);
  EXPECT_EQ(dispatch_grid(args(2048)).senders, 2048u / 4 / 2);
}

// A token has rows for eight ranks at most, however many there are. A rank without tokens has nothing to send.
TEST(MoeGrid, OfARingOfManyRanksHasEnoughSenders) {
  MoeExchangeArgs exchange{.tokens = 4096, .hidden = 7168, .experts = 288, .top_k = 8, .cast = RowCast::fp8};
  const Grids of{shape_of(exchange, 72), 72};
  ExchangeGridArgs args = of.args(4096, kJoined, {.blocks = 8});
  EXPECT_EQ(dispatch_grid(args).senders, (8u * 6 - 1) * 48 / (48 + 127));
  args.tokens = 0;
  EXPECT_EQ(dispatch_grid(args).senders, 1u);
  EXPECT_EQ(combine_grid(args).senders, 8u * 4 - 1 - 1);
}

// All rows of a rank alone stay where they are: no warp only receives.
TEST(MoeGrid, OfARingOfOneRankHasOneKindOfWarps) {
  const Grids of{shape_of({.tokens = 2048, .hidden = 128, .experts = 4, .top_k = 2}, 1), 1};
  const ExchangeGridArgs args = of.args(2048);
  EXPECT_EQ(dispatch_grid(args).senders, 0u);
  EXPECT_EQ(combine_grid(args).senders, 0u);
}

// The rows of one token are those of 224 warps. Few blocks of 128 threads would leave most of their processors idle.
TEST(MoeGrid, FewBlocksAreLarge) {
  const Grids of;
  expect_grid(combine_grid(of.args(1, kJoined, {.blocks = 57})), 57, 128);
  expect_grid(combine_grid(of.args(1, kJoined, {.blocks = 56})), 56, 256);
  expect_grid(combine_grid(of.args(1, kJoined, {.blocks = 29})), 29, 256);
  expect_grid(combine_grid(of.args(1, kJoined, {.blocks = 28})), 28, 512);
  expect_grid(combine_grid(of.args(1, kJoined, {.blocks = 1})), 1, 512);
  expect_grid(dispatch_grid(of.args(8, kJoined, {.blocks = 9})), 9, 512);
}

TEST(MoeGrid, IsTheCallersWhereHeSaysSo) {
  const Grids of;
  expect_grid(dispatch_grid(of.args(128, kJoined, {.blocks = 7, .threads = 96})), 7, 96);
  expect_grid(combine_grid(of.args(1, kJoined, {.blocks = 60})), 60, 128);
  expect_grid(combine_grid(of.args(1, kJoined, {.threads = 256})), 28 + 1, 256);
}

}  // namespace
}  // namespace weft::detail
