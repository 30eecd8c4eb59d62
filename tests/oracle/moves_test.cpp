// The oracle's rows, against numbers worked out by hand.
#include "oracle/moves.hpp"

#include <gtest/gtest.h>

namespace weft::oracle {
namespace {

using Numbers = std::vector<std::size_t>;

// Every part's beginning and number of rows.
Numbers parts(std::size_t rows, std::size_t count, Sharding sharding) {
  Numbers numbers;
  for (std::size_t part = 0; part < count; ++part) {
    const Rows of = part_of(rows, count, part, sharding);
    numbers.insert(numbers.end(), {of.begin, of.size});
  }
  return numbers;
}

// 7 rows of 3 ranks: 7 = 3 + 2 + 2, or 3 + 3 + 1 as ⌈7/3⌉ is 3.
TEST(OracleMoves, Parts) {
  EXPECT_EQ(parts(7, 3, Sharding::balanced), (Numbers{0, 3, 3, 2, 5, 2}));
  EXPECT_EQ(parts(2, 3, Sharding::balanced), (Numbers{0, 1, 1, 1, 2, 0}));
  EXPECT_EQ(parts(7, 3, Sharding::ceil), (Numbers{0, 3, 3, 3, 6, 1}));
  EXPECT_EQ(parts(4, 3, Sharding::ceil), (Numbers{0, 2, 2, 2, 4, 0}));
  EXPECT_EQ(parts(7, 1, Sharding::none), (Numbers{0, 7}));
}

Numbers slots(Padding padding, std::size_t slot_rows = 0, const std::vector<std::int32_t>& given = {}) {
  Numbers numbers;
  for (const Place& place : places_of(Numbers{3, 0, 5}, padding, slot_rows, given)) {
    EXPECT_EQ(place.rows, (Numbers{3, 0, 5}[numbers.size() / 2]));
    numbers.insert(numbers.end(), {place.begin, place.slot});
  }
  return numbers;
}

// Slots of 3, 0 and 5 rows, each behind the one before.
TEST(OracleMoves, Slots) {
  EXPECT_EQ(slots(Padding::none), (Numbers{0, 3, 3, 0, 3, 5}));
  EXPECT_EQ(slots(Padding::aligned, 4), (Numbers{0, 4, 4, 0, 4, 8}));
  EXPECT_EQ(slots(Padding::max), (Numbers{0, 5, 5, 5, 10, 5}));
  EXPECT_EQ(slots(Padding::fixed, 6), (Numbers{0, 6, 6, 6, 12, 6}));
  EXPECT_EQ(slots(Padding::per_rank, 0, {3, 2, 7}), (Numbers{0, 3, 3, 2, 5, 7}));
  EXPECT_EQ(rows_of(places_of(Numbers{3, 0, 5}, Padding::fixed, 6)), 18u);
}

Bytes bytes(std::initializer_list<int> numbers) {
  Bytes all;
  for (const int number : numbers) all.push_back(static_cast<std::byte>(number));
  return all;
}

// One row and two of two bytes, in slots of a multiple of two: the pad is row 1.
TEST(OracleMoves, GathersPutRowsIntoTheirSlots) {
  const auto places = places_of(Numbers{1, 2}, Padding::aligned, 2);
  const Bytes first = bytes({1, 2}), second = bytes({3, 4, 5, 6});
  const std::vector<std::span<const std::byte>> messages{first, second};
  EXPECT_EQ(gathered(places, messages, 2), bytes({1, 2, 0, 0, 3, 4, 5, 6}));
}

TEST(OracleMoves, AllToAllTakesOnesOwnPartOfEach) {
  const Bytes first = bytes({1, 2, 3}), second = bytes({4, 5, 6}), third = bytes({7, 8, 9});
  const std::vector<std::span<const std::byte>> messages{first, second, third};
  EXPECT_EQ(exchanged(messages, 1), bytes({2, 5, 8}));
  EXPECT_EQ(exchanged(messages, 2), bytes({3, 6, 9}));
}

// i32 rows of one element: (10, 20, 30) + (1, 2, 3), of which rank 0 has one row, and a pad, and rank 1 two.
TEST(OracleMoves, ScattersGiveOnesOwnSums) {
  const auto places = places_of(Numbers{1, 2}, Padding::aligned, 2);
  const Bytes first = bytes({10, 0, 0, 0, 20, 0, 0, 0, 30, 0, 0, 0});
  const Bytes second = bytes({1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0});
  const std::vector<std::span<const std::byte>> messages{first, second};
  EXPECT_EQ(scattered(Type::i32, Op::sum, places, messages, 0, 4), bytes({11, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(scattered(Type::i32, Op::sum, places, messages, 1, 4), bytes({22, 0, 0, 0, 33, 0, 0, 0}));
}

// u8 rows of one element: the larger and the smaller one of 10 and 1, and half of 11.
TEST(OracleMoves, ScattersReduceByTheirOp) {
  const auto places = places_of(Numbers{1}, Padding::none);
  const Bytes first = bytes({10}), second = bytes({1});
  const std::vector<std::span<const std::byte>> messages{first, second};
  EXPECT_EQ(scattered(Type::u8, Op::max, places, messages, 0, 1), bytes({10}));
  EXPECT_EQ(scattered(Type::u8, Op::min, places, messages, 0, 1), bytes({1}));
  EXPECT_EQ(scattered(Type::u8, Op::avg, places, messages, 0, 1), bytes({5}));
}

// The first slot's pad is no row of a message: rank 1's sum is of the messages' second rows, whatever slots are.
TEST(OracleMoves, MessagesHaveNoPads) {
  const auto places = places_of(Numbers{1, 1}, Padding::fixed, 2);
  const Bytes first = bytes({10, 0, 0, 0, 20, 0, 0, 0, 99, 0, 0, 0}),
              second = bytes({1, 0, 0, 0, 2, 0, 0, 0, 99, 0, 0, 0});
  const std::vector<std::span<const std::byte>> messages{first, second};
  EXPECT_EQ(scattered(Type::i32, Op::sum, places, messages, 1, 4), bytes({22, 0, 0, 0, 0, 0, 0, 0}));
}

// Ranks 0 and 1 share three i32 rows, ranks 2 and 3 one; the slots of ranks 0 and 2 have a pad.
TEST(OracleMoves, CrossingsSumAGroupsRowsOrAllRanks) {
  const auto places = places_of(Numbers{1, 2, 1, 0}, Padding::aligned, 2);
  const Bytes a = bytes({10, 0, 0, 0, 20, 0, 0, 0, 30, 0, 0, 0}), b = bytes({1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0});
  const Bytes c = bytes({40, 0, 0, 0}), d = bytes({4, 0, 0, 0});
  const std::vector<std::span<const std::byte>> groups{a, b, c, d};
  EXPECT_EQ(gathered_sums(Type::i32, places, 2, groups, 4),
            bytes({11, 0, 0, 0, 0, 0, 0, 0, 22, 0, 0, 0, 33, 0, 0, 0, 44, 0, 0, 0, 0, 0, 0, 0}));

  const Bytes all = bytes({1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0});
  const std::vector<std::span<const std::byte>> ranks{all, all, all, all};
  EXPECT_EQ(scattered_sums(Type::i32, places, 2, ranks, 1, 4),
            bytes({4, 0, 0, 0, 8, 0, 0, 0, 12, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(scattered_sums(Type::i32, places, 2, ranks, 2, 4), bytes({16, 0, 0, 0, 0, 0, 0, 0}));
}

Numbers taken(Padding padding, std::size_t slot_rows, std::size_t shards, std::size_t shard, Sharding sharding,
              bool of_slots) {
  const Rows rows = taken_of(places_of(Numbers{3, 5}, padding, slot_rows), 1, shards, shard, sharding, of_slots);
  return {rows.begin, rows.size};
}

// Rows 3 … 7 are the second slot's; of a slot of 8, which begins at 8, the halves are 4 and 4, of which 4 and 1 are
// rows.
TEST(OracleMoves, RowsThatAreTaken) {
  EXPECT_EQ(taken(Padding::none, 0, 1, 0, Sharding::none, false), (Numbers{3, 5}));
  EXPECT_EQ(taken(Padding::none, 0, 2, 0, Sharding::balanced, false), (Numbers{3, 3}));
  EXPECT_EQ(taken(Padding::none, 0, 2, 1, Sharding::balanced, false), (Numbers{6, 2}));
  EXPECT_EQ(taken(Padding::fixed, 8, 2, 1, Sharding::ceil, true), (Numbers{12, 1}));
  EXPECT_EQ(taken(Padding::fixed, 8, 2, 1, Sharding::ceil, false), (Numbers{11, 2}));
  EXPECT_EQ(taken(Padding::fixed, 8, 4, 3, Sharding::ceil, true), (Numbers{13, 0}));
}

// Groups of two ranks have 3 and 5 rows. Bits of the second column: 6 | 2 | 3 | 2 is 7, and 6 & 2 & 3 & 2 is 2.
TEST(OracleMoves, TablesOfCounts) {
  const std::vector<std::int32_t> said{3, 6, 3, 2, 5, 3, 5, 2};
  CountRules rules{.columns = 2,
                   .group_ranks = 2,
                   .sharding = Sharding::balanced,
                   .split_slots = true,
                   .padding = Padding::aligned,
                   .slot_rows = 4};
  // Slots of 4 and 8 in halves of 2 and 4: 3 = 2 + 1, and 5 = 4 + 1.
  EXPECT_EQ(table_of_counts(rules, said), (std::vector<std::int32_t>{3, 5, 4, 8, 0, 4, 12, 5, 8, 2, 1, 4, 1, 2, 2,
                                                                     4, 4, 7, 7, 1, 2, 3,  6, 3, 2, 5, 3, 5, 2}));
  rules.split_slots = false;
  rules.sharding = Sharding::ceil;
  rules.padding = Padding::none;
  EXPECT_EQ(table_of_counts(rules, said), (std::vector<std::int32_t>{3, 5, 3, 5, 0, 3, 8, 5, 8, 2, 1, 3, 2, 2, 1,
                                                                     3, 2, 7, 7, 1, 2, 3, 6, 3, 2, 5, 3, 5, 2}));
}

}  // namespace
}  // namespace weft::oracle
