// The oracle's dispatch and combine, against places and bits worked out by hand.
#include "oracle/moe.hpp"

#include <gtest/gtest.h>

namespace weft::oracle {
namespace {

// The rules are made of any struct with these fields.
enum class HandType { bf16, f16, fp8 };
enum class HandCast { none, fp8, fp8_ue8m0, fp8_pow2 };
enum class HandOrder { rows, columns };
enum class HandLayout { expert_masked, expert_contiguous, rank_major, rank_compact };
struct HandArgs {
  std::uint32_t tokens = 3, hidden = 1, experts = 3, top_k = 2, scale_bytes = 0, alignment = 1, capacity = 0;
  HandType type = HandType::bf16;
  Type::Name combine_type = Type::bf16;
  HandCast cast = HandCast::none;
  HandOrder scale_order = HandOrder::rows;
  bool weighted = true;
  HandLayout layout = HandLayout::expert_masked;
};

using Ranks = std::vector<std::uint32_t>;

TEST(OracleMoe, ExpertsInBlocksLargerOnesFirst) {
  EXPECT_EQ(homes_of(5, 2), (Ranks{0, 0, 0, 1, 1}));
  EXPECT_EQ(homes_of(7, 3), (Ranks{0, 0, 0, 1, 1, 2, 2}));
}

// Two tokens of rank 0 and two of rank 1, which name experts 2, 0 · nobody, 2 · 2, 1 · nobody, nobody.
Routing hand_routing() {
  Routing routing;
  const MoeRules rules{HandArgs{}};
  route(rules, 0, std::vector<std::int64_t>{2, 0, -1, 2}, std::vector<float>{1, 2, 3, 4}, routing);
  route(rules, 1, std::vector<std::int64_t>{2, 1, (std::int64_t{1} << 32) + 1, 3}, std::vector<float>{5, 6, 7, 8},
        routing);
  return routing;
}

TEST(OracleMoe, TokensComeByRankAndToken) {
  const Routing routing = hand_routing();
  ASSERT_EQ(routing.size(), 3u);
  std::vector<float> arrived;
  for (const auto& arrivals : routing)
    for (const Arrival& one : arrivals)
      arrived.insert(arrived.end(), {static_cast<float>(one.rank), static_cast<float>(one.token), one.weight});
  // (rank, token, weight): of expert 0, of 1, and of 2 three.
  EXPECT_EQ(arrived, (std::vector<float>{0, 0, 2, 1, 0, 6, 0, 0, 1, 0, 1, 4, 1, 0, 5}));
}

// Two ranks of three tokens, so six rows of an expert. A rank of two experts has twice as many at most, and behind
// each expert three pads.
TEST(OracleMoe, CapacitiesOfAllThatCanCome) {
  const Ranks homes{0, 0, 1};
  HandArgs args;
  EXPECT_EQ(capacity_of(args, homes, 2), 6u);
  args.scale_order = HandOrder::columns;
  EXPECT_EQ(capacity_of(args, homes, 2), 8u);  // a multiple of 4
  args.scale_order = HandOrder::rows;
  args.layout = HandLayout::expert_contiguous;
  args.alignment = 4;
  EXPECT_EQ(capacity_of(args, homes, 2), 18u);
  args.top_k = 1;
  EXPECT_EQ(capacity_of(args, homes, 2), 12u);
  args.top_k = 5;  // more than there are experts of a rank
  EXPECT_EQ(capacity_of(args, homes, 2), 18u);
  args.capacity = 5;
  EXPECT_EQ(capacity_of(args, homes, 2), 5u);
  args.layout = HandLayout::rank_major;
  EXPECT_EQ(capacity_of(args, homes, 2), 3u);
  args.layout = HandLayout::rank_compact;
  EXPECT_EQ(capacity_of(args, homes, 2), 5u);
  args.capacity = 0;
  EXPECT_EQ(capacity_of(args, homes, 2), 6u);
}

TEST(OracleMoe, ExpertsBeginAtMultiples) {
  HandArgs args;
  args.alignment = 4;
  EXPECT_EQ(offsets_of(args, std::vector<std::size_t>{3, 0, 5}), (std::vector<std::size_t>{0, 4, 4, 12}));
}

// Rows and how many are kept, of experts 0 and 1 of rank 0, and of expert 2 of rank 1.
std::vector<std::size_t> placed(const HandArgs& args) {
  std::vector<std::size_t> numbers;
  for (const ExpertRows& of : place_rows(args, Ranks{0, 0, 1}, hand_routing(), 2)) {
    numbers.insert(numbers.end(), of.row.begin(), of.row.end());
    numbers.push_back(of.kept);
  }
  return numbers;
}

TEST(OracleMoe, RowsOfEveryLayout) {
  HandArgs args;
  args.capacity = 2;  // expert 1 begins behind two rows; of expert 2's three rows the last has no room
  EXPECT_EQ(placed(args), (std::vector<std::size_t>{0, 1, 2, 1, 0, 1, 2, 2}));
  args.layout = HandLayout::expert_contiguous;
  args.alignment = 4;
  args.capacity = 4;  // expert 1 would begin there
  EXPECT_EQ(placed(args), (std::vector<std::size_t>{0, 1, 4, 0, 0, 1, 2, 3}));
  args.capacity = 5;
  EXPECT_EQ(placed(args), (std::vector<std::size_t>{0, 1, 4, 1, 0, 1, 2, 3}));
  args.layout = HandLayout::rank_major;  // of three tokens: rank 1's begin at 3
  EXPECT_EQ(placed(args), (std::vector<std::size_t>{0, 1, 3, 1, 0, 1, 3, 3}));
  args.layout = HandLayout::rank_compact;  // expert 1's row comes behind that of rank 0
  EXPECT_EQ(placed(args), (std::vector<std::size_t>{0, 1, 1, 1, 0, 1, 2, 3}));
  args.capacity = 1;
  EXPECT_EQ(placed(args), (std::vector<std::size_t>{0, 1, 1, 0, 0, 1, 2, 1}));
}

// Rank 0's two tokens go to ranks 0 and 1, and to rank 1; rank 1's first one goes to both. A fifth entry names an
// expert of rank 0 beside its other one, which is no row more.
TEST(OracleMoe, RowsOfEachSourceForEachRank) {
  Routing routing = hand_routing();
  EXPECT_EQ(rank_prefix(Ranks{0, 0, 1}, routing, 2), (std::vector<std::int32_t>{1, 2, 2, 3}));
  routing[1].insert(routing[1].begin(), {0, 0, 9});
  EXPECT_EQ(rank_prefix(Ranks{0, 0, 1}, routing, 2), (std::vector<std::int32_t>{1, 2, 2, 3}));
}

TEST(OracleMoe, LocalNumbersOfExperts) {
  const Ranks experts{1, 4};
  EXPECT_EQ(local_id(experts, 1), 0);
  EXPECT_EQ(local_id(experts, 4), 1);
  EXPECT_EQ(local_id(experts, 2), -1);
  EXPECT_EQ(local_id(experts, -1), -1);
  EXPECT_EQ(local_id(experts, (std::int64_t{1} << 32) + 4), -1);
}

TEST(OracleMoe, RowsArriveAsTheyAre) {
  HandArgs args;
  args.type = HandType::fp8;
  args.scale_bytes = 1;
  const Bytes row{std::byte{5}}, scales{std::byte{9}};
  EXPECT_EQ(arriving_row(args, row, scales), (Bytes{std::byte{5}, std::byte{9}}));
}

// f16's 0x3c00 is 1, and 0x5f00 is 448: a scale of 1, which is 2^(127 − 127), and e4m3's 0x38 and 0x7e.
TEST(OracleMoe, RowsArriveCast) {
  HandArgs args;
  args.hidden = 128;
  args.type = HandType::f16;
  args.cast = HandCast::fp8_ue8m0;
  Bytes row(256);
  for (std::size_t i = 0; i < 128; ++i) put(row, Type::f16, i, i == 7 ? 0x5f00 : 0x3c00);
  Bytes wanted(129, std::byte{0x38});
  wanted[7] = std::byte{0x7e};
  wanted[128] = std::byte{127};
  EXPECT_EQ(arriving_row(args, row, {}), wanted);
}

// 512, f16's 0x6000, has a scale of 2: f32's 0x40000000. Halved, 512 is 256 (0x78), and 1 is 0.5 (0x30).
TEST(OracleMoe, RowsArriveCastWithPowersOfTwo) {
  HandArgs args;
  args.hidden = 128;
  args.type = HandType::f16;
  args.cast = HandCast::fp8_pow2;
  Bytes row(256);
  for (std::size_t i = 0; i < 128; ++i) put(row, Type::f16, i, i == 7 ? 0x6000 : 0x3c00);
  Bytes wanted(128, std::byte{0x30});
  wanted[7] = std::byte{0x78};
  const Bytes two{std::byte{0}, std::byte{0}, std::byte{0}, std::byte{0x40}};
  wanted.insert(wanted.end(), two.begin(), two.end());
  EXPECT_EQ(arriving_row(args, row, {}), wanted);
  EXPECT_EQ(MoeRules(args).arriving_scale_bytes(), 4u);
}

// Five scales of a byte are two words by columns. Row 5 is the second one of expert 1, whose rows begin at 4: its words
// lie at 4 · 8 + 4, and four words later. Of eight rows together it is the sixth.
TEST(OracleMoe, PlacesOfScales) {
  HandArgs args;
  args.hidden = 5 * 128;
  args.cast = HandCast::fp8_ue8m0;
  EXPECT_EQ(scale_place(args, 4, 8, 2, 3), 13u);  // rows: 2 · 5 + 3
  args.scale_order = HandOrder::columns;
  EXPECT_EQ(scale_place(args, 4, 8, 5, 0), 36u);
  EXPECT_EQ(scale_place(args, 4, 8, 5, 4), 52u);
  EXPECT_EQ(scale_place(args, 4, 8, 5, 2), 38u);
  args.layout = HandLayout::expert_contiguous;
  EXPECT_EQ(scale_place(args, 4, 8, 5, 0), 20u);
  EXPECT_EQ(scale_place(args, 4, 8, 5, 4), 52u);
}

Bytes row_of(std::uint32_t bits) {
  Bytes row(2);
  put(row, Type::bf16, 0, bits);
  return row;
}
std::uint32_t bits_of(const Bytes& row) {
  return get(row, Type::bf16, 0);
}

// (1 + 2^-23) · (1 + 2^-7) − (1 + 2^-7) is 2^-23 + 2^-30; a product that is rounded by itself loses 2^-30.
TEST(OracleMoe, ExpertsOfARankAreAddedInOneStep) {
  const std::vector<Made> made{{1, row_of(0xbf81)}, {1 + 0x1p-23f, row_of(0x3f81)}};
  EXPECT_EQ(bits_of(sum_of_rank(Type::bf16, made)), 0x3401u);  // 2^(104 − 127) · (1 + 1/128)
  const std::vector<Made> alone{{2, row_of(0x3f80)}};
  EXPECT_EQ(bits_of(sum_of_rank(Type::bf16, alone)), 0x4000u);
}

// In f32, 2^24 + 1 is 2^24: before −2^24, a 1 is lost; behind both it is not.
TEST(OracleMoe, RanksAreAddedInOrderAndTheResidualLast) {
  const auto sum = [](std::initializer_list<std::uint32_t> rows, const Bytes& residual) {
    std::vector<Bytes> returned;
    for (const std::uint32_t bits : rows) returned.push_back(row_of(bits));
    return bits_of(sum_of_ranks(Type::bf16, returned, residual, 1));
  };
  EXPECT_EQ(sum({0x4b80, 0x3f80, 0xcb80}, {}), 0u);
  EXPECT_EQ(sum({0x4b80, 0xcb80}, row_of(0x3f80)), 0x3f80u);
  EXPECT_EQ(sum({}, row_of(0x3f80)), 0x3f80u);
  EXPECT_EQ(sum({}, {}), 0u);
  EXPECT_EQ(sum({0x8000}, {}), 0x8000u);  // −0 comes back as it is
}

// A token of rank 0. Its experts 0 and 1, on rank 0, made 256 and 1; its expert 2, on rank 1, made 1. bf16 has 256 and
// 258.
std::uint32_t combined_bits(const HandArgs& args, std::size_t kept, float weight) {
  const Routing routing{{{0, 0, weight}}, {{0, 0, weight}}, {{0, 0, weight}}};
  const std::vector<ExpertRows> placed{{{0}, 1}, {{0}, 1}, {{0}, kept}};
  const auto made = [](std::uint32_t expert, std::size_t) { return row_of(expert == 0 ? 0x4380 : 0x3f80); };
  return bits_of(combined(args, Ranks{0, 0, 1}, routing, placed, made, 0, 1, {}));
}

TEST(OracleMoe, WhatARankReturnsIsRounded) {
  HandArgs args;
  EXPECT_EQ(combined_bits(args, 1, 1), 0x4380u);  // 257 is returned as 256, and 257 rounded to 256
}

// 2 · 256 + 2 · 1 is 514, which bf16 has not: 512 and 516 are its neighbours, a tie. And 512 + 2 is one, too.
TEST(OracleMoe, WeightsCountWhereTheExchangeHasThem) {
  HandArgs args;
  EXPECT_EQ(combined_bits(args, 1, 2), 0x4400u);
  args.weighted = false;
  EXPECT_EQ(combined_bits(args, 1, 2), 0x4380u);
}

// Without weights and experts 0 and 1 as one row of 256; rank 1's row makes 257, which is 256.
TEST(OracleMoe, ExpertsOfARankShareARowByRank) {
  HandArgs args;
  const Routing routing{{{0, 0, 7}}, {{0, 0, 7}}, {}};
  const std::vector<ExpertRows> placed{{{0}, 1}, {{0}, 1}, {}};
  const auto made = [](std::uint32_t, std::size_t) { return row_of(0x3f80); };
  for (const HandLayout layout : {HandLayout::rank_major, HandLayout::rank_compact}) {
    args.layout = layout;
    EXPECT_EQ(bits_of(combined(args, Ranks{0, 0, 1}, routing, placed, made, 0, 1, {})), 0x3f80u);
  }
}

// 4 of expert 0 alone: expert 2's row had no room.
TEST(OracleMoe, RowsWithoutRoomAreNotAdded) {
  HandArgs args;
  const Routing routing{{{0, 0, 1}}, {}, {{0, 0, 1}}};
  const std::vector<ExpertRows> placed{{{0}, 1}, {}, {{0}, 0}};
  const auto made = [](std::uint32_t, std::size_t) { return row_of(0x4080); };
  EXPECT_EQ(bits_of(combined(args, Ranks{0, 0, 1}, routing, placed, made, 0, 1, {})), 0x4080u);
}

}  // namespace
}  // namespace weft::oracle
