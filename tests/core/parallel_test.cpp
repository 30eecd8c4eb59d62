// The group algebra of data-parallel attention: the tables that engines use.
#include "weft/parallel.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "support/ranks.hpp"
#include "weft/error.hpp"

namespace weft::test {
namespace {

using Ranks = std::vector<int>;

std::vector<Ranks> groups(const ParallelLayout& layout, Ranks (ParallelLayout::*group)(int) const) {
  std::vector<Ranks> all;
  for (int rank = 0; rank < layout.tp; ++rank) {
    const Ranks mine = (layout.*group)(rank);
    EXPECT_NE(std::ranges::find(mine, rank), mine.end());
    if (std::ranges::find(all, mine) == all.end()) all.push_back(mine);
  }
  return all;
}

const std::vector<Ranks> kAll{{0, 1, 2, 3, 4, 5, 6, 7}};
const std::vector<Ranks> kPairs{{0, 1}, {2, 3}, {4, 5}, {6, 7}};
const std::vector<Ranks> kStrides{{0, 2, 4, 6}, {1, 3, 5, 7}};
const std::vector<Ranks> kAlone{{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}};

TEST(ParallelLayout, EightRanksInFourAttentionGroups) {
  const ParallelLayout layout{.tp = 8, .dp = 4, .ep = 8};
  layout.check();
  EXPECT_EQ(layout.attn_tp(), 2);
  for (int rank = 0; rank < 8; ++rank) {
    EXPECT_EQ(layout.attn_dp_rank(rank), (Ranks{0, 0, 1, 1, 2, 2, 3, 3}[static_cast<std::size_t>(rank)]));
    EXPECT_EQ(layout.attn_tp_rank(rank), (Ranks{0, 1, 0, 1, 0, 1, 0, 1}[static_cast<std::size_t>(rank)]));
  }
  EXPECT_EQ(groups(layout, &ParallelLayout::attn_tp_group), kPairs);
  EXPECT_EQ(groups(layout, &ParallelLayout::attn_dp_group), kStrides);
  EXPECT_EQ(groups(layout, &ParallelLayout::moe_ep_group), kAll);
  EXPECT_EQ(groups(layout, &ParallelLayout::moe_tp_group), kAlone);
  EXPECT_EQ(groups(layout, &ParallelLayout::dense_tp_group), kAll);
}

TEST(ParallelLayout, ExpertsSplitEightRanks) {
  const ParallelLayout four{.tp = 8, .dp = 4, .ep = 4}, one{.tp = 8, .dp = 4, .ep = 1};
  EXPECT_EQ(groups(four, &ParallelLayout::moe_tp_group), kPairs);
  EXPECT_EQ(groups(four, &ParallelLayout::moe_ep_group), kStrides);
  EXPECT_EQ(four.moe_ep_rank(5), 2);
  EXPECT_EQ(four.moe_tp_rank(5), 1);
  EXPECT_EQ(groups(one, &ParallelLayout::moe_tp_group), kAll);
  EXPECT_EQ(groups(one, &ParallelLayout::moe_ep_group), kAlone);
}

TEST(ParallelLayout, EveryRankItsOwnAttentionGroup) {
  const ParallelLayout layout{.tp = 8, .dp = 8, .ep = 8, .moe_dense_tp = 1};
  for (int rank = 0; rank < 8; ++rank) {
    EXPECT_EQ(layout.attn_dp_rank(rank), rank);
    EXPECT_EQ(layout.attn_tp_rank(rank), 0);
  }
  EXPECT_EQ(groups(layout, &ParallelLayout::attn_tp_group), kAlone);
  EXPECT_EQ(groups(layout, &ParallelLayout::attn_dp_group), kAll);
  EXPECT_EQ(groups(layout, &ParallelLayout::dense_tp_group), kAlone);
}

TEST(ParallelLayout, OneAttentionGroupIsPlainTensorParallelism) {
  const ParallelLayout layout{.tp = 8};
  EXPECT_EQ(groups(layout, &ParallelLayout::attn_tp_group), kAll);
  EXPECT_EQ(groups(layout, &ParallelLayout::attn_dp_group), kAlone);
  EXPECT_EQ(layout.attn_tp_rank(5), 5);
}

TEST(ParallelLayout, ColorsMakeItsGroups) {
  for (const ParallelLayout& layout : {ParallelLayout{.tp = 8, .dp = 4, .ep = 2, .moe_dense_tp = 4},
                                       ParallelLayout{.tp = 12, .dp = 3, .ep = 6, .moe_dense_tp = 2}}) {
    const auto expect_same = [&](Ranks (ParallelLayout::*group)(int) const, int (ParallelLayout::*color)(int) const) {
      for (int rank = 0; rank < layout.tp; ++rank) {
        Ranks same;
        for (int other = 0; other < layout.tp; ++other) {
          if ((layout.*color)(other) == (layout.*color)(rank)) same.push_back(other);
        }
        EXPECT_EQ((layout.*group)(rank), same);
      }
    };
    expect_same(&ParallelLayout::attn_tp_group, &ParallelLayout::attn_tp_color);
    expect_same(&ParallelLayout::attn_dp_group, &ParallelLayout::attn_dp_color);
    expect_same(&ParallelLayout::moe_tp_group, &ParallelLayout::moe_tp_color);
    expect_same(&ParallelLayout::moe_ep_group, &ParallelLayout::moe_ep_color);
    expect_same(&ParallelLayout::dense_tp_group, &ParallelLayout::dense_tp_color);
  }
}

TEST(ParallelLayout, WhatDoesNotDivideIsRejectedByName) {
  const auto error = [](const ParallelLayout& layout) { return error_of([&] { layout.check(); }); };
  expect_says(error({.tp = 0}), "ParallelLayout::tp: 0");
  expect_says(error({.tp = 8, .dp = 3}), "ParallelLayout::dp: 3 is not a divisor of tp, 8");
  expect_says(error({.tp = 8, .dp = 0}), "ParallelLayout::dp: 0");
  expect_says(error({.tp = 8, .ep = 16}), "ParallelLayout::ep: 16");
  expect_says(error({.tp = 8, .moe_dense_tp = 5}), "ParallelLayout::moe_dense_tp: 5");
}

// check() need not be called first: no function divides by zero or counts absent ranks.
TEST(ParallelLayout, EveryQuestionIsChecked) {
  const ParallelLayout none{.tp = 8, .dp = 0, .ep = 0, .moe_dense_tp = 3}, good{.tp = 8, .dp = 4, .ep = 2};
  expect_says(error_of([&] { static_cast<void>(none.attn_tp()); }), "ParallelLayout::dp: 0");
  expect_says(error_of([&] { static_cast<void>(none.moe_tp()); }), "ParallelLayout::dp: 0");
  const ParallelLayout dense{.tp = 8, .moe_dense_tp = 3};
  expect_says(error_of([&] { static_cast<void>(dense.dense_tp()); }), "ParallelLayout::moe_dense_tp: 3");
  const auto expect_rejected = [&](auto question) {
    expect_says(error_of([&] { static_cast<void>((none.*question)(0)); }), "ParallelLayout::dp: 0");
    for (const int rank : {-1, 8}) {
      expect_says(error_of([&] { static_cast<void>((good.*question)(rank)); }),
                  "rank: " + std::to_string(rank) + " is not between 0 and 7");
    }
  };
  using L = ParallelLayout;
  for (const auto number : {&L::attn_dp_rank, &L::attn_tp_rank, &L::moe_ep_rank, &L::moe_tp_rank, &L::attn_tp_color,
                            &L::attn_dp_color, &L::moe_tp_color, &L::moe_ep_color, &L::dense_tp_color})
    expect_rejected(number);
  for (const auto group :
       {&L::attn_tp_group, &L::attn_dp_group, &L::moe_tp_group, &L::moe_ep_group, &L::dense_tp_group})
    expect_rejected(group);
}

std::vector<std::size_t> sizes(std::size_t rows, int parts, Sharding sharding) {
  std::vector<std::size_t> all;
  std::size_t next = 0;
  for (int part = 0; part < parts; ++part) {
    const RowRange range = shard_of(rows, parts, part, sharding);
    EXPECT_EQ(range.begin, next);  // no gaps, in order
    next = range.end;
    all.push_back(range.size());
  }
  EXPECT_EQ(next, rows);
  return all;
}

TEST(Shards, BothRules) {
  using Sizes = std::vector<std::size_t>;
  EXPECT_EQ(sizes(10, 4, Sharding::balanced), (Sizes{3, 3, 2, 2}));
  EXPECT_EQ(sizes(10, 4, Sharding::ceil), (Sizes{3, 3, 3, 1}));
  EXPECT_EQ(sizes(5, 4, Sharding::ceil), (Sizes{2, 2, 1, 0}));
  EXPECT_EQ(sizes(1, 4, Sharding::balanced), (Sizes{1, 0, 0, 0}));
  EXPECT_EQ(sizes(0, 3, Sharding::ceil), (Sizes{0, 0, 0}));
  for (const Sharding sharding : {Sharding::balanced, Sharding::ceil})
    EXPECT_EQ(sizes(12, 4, sharding), (Sizes{3, 3, 3, 3}));
  EXPECT_EQ(shard_of(129'280, 2, 1, Sharding::balanced).begin, 64'640u);  // columns of DeepSeek's vocabulary
  EXPECT_EQ(shard_of(129'280, 8, 0, Sharding::balanced).size(), 16'160u);
  expect_says(error_of([] { shard_of(4, 2, 2, Sharding::ceil); }), "part: 2");
}

TEST(Slots, AreAsLongAsTheirKindSays) {
  EXPECT_EQ(slot_rows_of(5, Padding::none, 0), 5u);
  EXPECT_EQ(slot_rows_of(5, Padding::aligned, 4), 8u);
  EXPECT_EQ(slot_rows_of(0, Padding::aligned, 4), 0u);
  EXPECT_EQ(slot_rows_of(5, Padding::max, 9), 9u);
  EXPECT_EQ(slot_rows_of(5, Padding::fixed, 16), 16u);
  EXPECT_EQ(slot_rows_of(16, Padding::fixed, 16), 16u);
  EXPECT_EQ(slot_rows_of(5, Padding::per_rank, 7), 7u);
  expect_says(error_of([] { slot_rows_of(5, Padding::aligned, 0); }),
              "slot_rows: 0 is not 1 or more, as slots are aligned to it");
  expect_says(error_of([] { slot_rows_of(5, static_cast<Padding>(7), 4); }), "padding: 7 is not none, aligned");
  expect_says(error_of([] { slot_rows_of(5, Padding::fixed, 4); }), "rows: 5 is not at most 4, the rows of a slot");
  expect_says(error_of([] { slot_rows_of(5, Padding::max, 4); }), "rows: 5 is not at most 4");
}

// The example of docs/dp_attention.md.
const std::vector<std::int32_t> kTokens{5, 2, 0, 3};

TEST(Slots, LieBehindEachOther) {
  using Slots = std::vector<RowRange>;
  EXPECT_EQ(slots_of(kTokens, Padding::none), (Slots{{0, 5}, {5, 7}, {7, 7}, {7, 10}}));
  EXPECT_EQ(slots_of(kTokens, Padding::aligned, 2), (Slots{{0, 6}, {6, 8}, {8, 8}, {8, 12}}));
  EXPECT_EQ(slots_of(kTokens, Padding::max), (Slots{{0, 5}, {5, 10}, {10, 15}, {15, 20}}));
  EXPECT_EQ(slots_of(kTokens, Padding::fixed, 6), (Slots{{0, 6}, {6, 12}, {12, 18}, {18, 24}}));
  EXPECT_TRUE(slots_of({}, Padding::max).empty());
  expect_says(error_of([] { slots_of(kTokens, Padding::fixed, 4); }), "rows: 5 is not at most 4");
  expect_says(error_of([] { slots_of(kTokens, Padding::per_rank, 6); }),
              "padding: per-rank is not none, aligned, max or fixed");
  const std::int32_t negative[] = {1, -1};
  for (const Padding kind : {Padding::none, Padding::max})
    expect_says(error_of([&] { slots_of(negative, kind); }), "rows: -1 is not 0 or more");
}

// Slots of shards: a rank's slot has its padding at the end.
TEST(Slots, OfShardsAreThePictureOfTheDocument) {
  using Slots = std::vector<RowRange>;
  const std::vector<std::int32_t> shards = shard_counts({.tp = 8, .dp = 4}, kTokens, Sharding::balanced);
  const auto behind_each_other = [](std::vector<std::size_t> lengths) {
    Slots slots;
    std::size_t begin = 0;
    for (const std::size_t length : lengths) slots.push_back({begin, begin + length}), begin += length;
    return slots;
  };
  EXPECT_EQ(slots_of(shards, Padding::none), behind_each_other({3, 2, 1, 1, 0, 0, 2, 1}));
  EXPECT_EQ(slots_of(shards, Padding::aligned, 2), behind_each_other({4, 2, 2, 2, 0, 0, 2, 2}));
  EXPECT_EQ(slots_of(shards, Padding::max), behind_each_other({3, 3, 3, 3, 3, 3, 3, 3}));
  EXPECT_EQ(slots_of(shards, Padding::fixed, 3), behind_each_other({3, 3, 3, 3, 3, 3, 3, 3}));
  const std::vector<std::int32_t> lengths{3, 2, 2, 1, 1, 0, 3, 3};
  EXPECT_EQ(slots_of(shards, lengths), behind_each_other({3, 2, 2, 1, 1, 0, 3, 3}));
}

TEST(Shards, CountsOfGroupsBecomeCountsOfRanks) {
  using Counts = std::vector<std::int32_t>;
  const ParallelLayout pairs{.tp = 8, .dp = 4}, fours{.tp = 8, .dp = 2}, alone{.tp = 4, .dp = 4}, one{.tp = 4};
  EXPECT_EQ(shard_counts(pairs, kTokens, Sharding::balanced), (Counts{3, 2, 1, 1, 0, 0, 2, 1}));
  EXPECT_EQ(shard_counts(fours, Counts{5, 2}, Sharding::balanced), (Counts{2, 1, 1, 1, 1, 1, 0, 0}));
  EXPECT_EQ(shard_counts(fours, Counts{5, 2}, Sharding::ceil), (Counts{2, 2, 1, 0, 1, 1, 0, 0}));
  EXPECT_EQ(shard_counts(alone, kTokens, Sharding::ceil), kTokens);
  EXPECT_EQ(shard_counts(one, Counts{6}, Sharding::balanced), (Counts{2, 2, 1, 1}));
  // A slot of six rows: each of its two ranks has three, and tokens fill the first ones.
  for (const Sharding sharding : {Sharding::balanced, Sharding::ceil})
    EXPECT_EQ(shard_counts(pairs, kTokens, sharding, 6), (Counts{3, 2, 2, 0, 0, 0, 3, 0}));
  expect_says(error_of([&] { shard_counts(pairs, kTokens, Sharding::balanced, 4); }), "rows: 5 is not at most 4");
  expect_says(error_of([&] { shard_counts(pairs, Counts{1, 2}, Sharding::balanced); }), "group_rows: 2 is not 4");
  expect_says(error_of([&] { shard_counts(pairs, kTokens, Sharding::none); }),
              "sharding: none is not balanced or ceil");
  expect_says(error_of([&] { shard_counts(alone, Counts{1, -2, 3, 4}, Sharding::ceil); }), "rows: -2");
  expect_says(error_of([&] { shard_counts({.tp = 4, .dp = 0}, kTokens, Sharding::ceil); }), "ParallelLayout::dp: 0");
}

// The slots of an engine's batch: neither the rows nor a common length determine them.
TEST(Slots, OfLengthsThatTheCallerGives) {
  using Counts = std::vector<std::int32_t>;
  EXPECT_EQ(slots_of(kTokens, Counts{6, 2, 1, 7}), (std::vector<RowRange>{{0, 6}, {6, 8}, {8, 9}, {9, 16}}));
  EXPECT_EQ(slots_of(kTokens, kTokens), slots_of(kTokens, Padding::none));
  expect_says(error_of([] { slots_of(kTokens, Counts{6, 2, 1}); }), "slot_rows: 3 is not 4, a number for each of rows");
  expect_says(error_of([] { slots_of(kTokens, Counts{4, 2, 1, 7}); }), "rows: 5 is not at most 4");
  expect_says(error_of([] { slots_of(kTokens, Counts{6, 2, -1, 7}); }), "rows: -1 is not 0 or more");
}

// Every group's slot is split by itself, and the shards' slots follow each other as the groups' do.
TEST(Shards, OfSlotsOfTheGroupsOwnLengths) {
  using Counts = std::vector<std::int32_t>;
  const ParallelLayout fours{.tp = 8, .dp = 2};
  const Counts tokens{5, 2}, slots{7, 4};
  EXPECT_EQ(shard_counts(fours, tokens, Sharding::balanced, slots), (Counts{2, 2, 1, 0, 1, 1, 0, 0}));
  EXPECT_EQ(shard_counts(fours, slots, Sharding::balanced), (Counts{2, 2, 2, 1, 1, 1, 1, 1}));
  EXPECT_EQ(shard_counts(fours, Counts{5, 5}, Sharding::ceil, Counts{9, 5}), (Counts{3, 2, 0, 0, 2, 2, 1, 0}));
  for (const Sharding sharding : {Sharding::balanced, Sharding::ceil}) {
    const Counts rows = shard_counts(fours, tokens, sharding, slots), lengths = shard_counts(fours, slots, sharding);
    const std::vector<RowRange> of_ranks = slots_of(rows, lengths), of_groups = slots_of(tokens, slots);
    for (std::size_t group = 0; group < 2; ++group) {
      EXPECT_EQ(of_ranks[4 * group].begin, of_groups[group].begin);
      EXPECT_EQ(of_ranks[4 * group + 3].end, of_groups[group].end);
      std::size_t before = of_groups[group].begin;  // the end of tokens: only padding follows
      for (std::size_t part = 4 * group; part < 4 * group + 4; ++part) {
        if (rows[part] == 0) continue;
        EXPECT_EQ(of_ranks[part].begin, before);
        before += static_cast<std::size_t>(rows[part]);
      }
      EXPECT_EQ(before - of_groups[group].begin, static_cast<std::size_t>(tokens[group]));
    }
  }
  expect_says(error_of([&] { shard_counts(fours, tokens, Sharding::ceil, Counts{7}); }), "slot_rows: 1 is not 2");
  expect_says(error_of([&] { shard_counts(fours, tokens, Sharding::ceil, Counts{4, 4}); }), "rows: 5 is not at most 4");
}

}  // namespace
}  // namespace weft::test
