// The oracle's RMSNorm, against numbers worked out by hand. Epsilons are what leaves 1, or 4, under the root.
#include "oracle/norm.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace weft::oracle {
namespace {

// Zeros but for these.
std::vector<float> row_with(std::size_t hidden, std::initializer_list<std::pair<std::size_t, float>> values) {
  std::vector<float> row(hidden);
  for (const auto& [column, value] : values) row[column] = value;
  return row;
}

// In bf16, 1 + 2^-8 is a tie between 1 and 1 + 2^-7, and (1 + 2^-7) + 2^-8 one between that and 1 + 2^-6.
TEST(OracleNorms, ResidualsAreAddedAndRounded) {
  const std::vector<std::uint32_t> sums{0x3f80, 0x3f81}, residual{0x3b80, 0x3b80};
  EXPECT_EQ(add_rows(Type::bf16, sums, residual), (std::vector<std::uint32_t>{0x3f80, 0x3f82}));
}

// Squares of 2 have a mean of 4; eight squares of 4 in sixteen columns one of 8, and with an epsilon of 8 that is 16.
TEST(OracleNorms, FactorsOfMeans) {
  EXPECT_EQ(norm_factor(std::vector<float>(8, 2.0f), 0), 0.5f);
  std::vector<float> row(16);
  std::fill_n(row.begin(), 8, 4.0f);
  EXPECT_EQ(norm_factor(row, 8), 0.25f);
}

TEST(OracleNorms, EpsilonIsUnderTheRoot) {
  EXPECT_EQ(norm_factor(std::vector<float>(8, 1.0f), 3), 0.5f);
}

// An order that loses digits would be the library's, too: so the factor is held to arithmetic in double.
TEST(OracleNorms, FactorsAreThoseOfExactMeans) {
  std::mt19937 random(7);
  std::normal_distribution<float> values;
  for (const std::size_t hidden : {8u, 4096u, 7168u, 65536u}) {
    std::vector<float> row(hidden);
    double squares = 0;
    for (float& value : row) {
      value = values(random);
      squares += static_cast<double>(value) * value;
    }
    const double wanted = 1 / std::sqrt(squares / static_cast<double>(hidden) + 1e-5);
    EXPECT_NEAR(norm_factor(row, 1e-5f) / wanted, 1, 5e-7) << hidden;
  }
}

// 4096² is 2^24, to which f32 adds 1 in vain: a pack of it and seven ones, in order, is 2^24, and its mean 2^21. From
// the other end 7 would be added, and the mean be 2^21 + 1.
TEST(OracleNorms, SquaresOfAPackInOrder) {
  std::vector<float> row(8, 1.0f);
  row[0] = 4096;
  EXPECT_EQ(norm_factor(row, -2097151), 1);
}

// 32 packs, of 2^24 and 31 ones: halves of halves are 2^24 + 1 (in vain), 2, 4, 8, 16, which make 2^24 + 30. One by one
// it would stay 2^24. (2^24 + 30)/256 is 65536.1171875.
TEST(OracleNorms, PacksOfASegmentAsATree) {
  std::vector<float> row(256);
  for (std::size_t i = 0; i < row.size(); i += 8) row[i] = i == 0 ? 4096 : 1;
  EXPECT_EQ(norm_factor(row, -65535.1171875f), 1);
}

// Segments of 256 columns: 0 has 2^24, 1 and 33 have ones, which meet before they are added to it: 2^24 + 2. In one
// tree both would be lost. (2^24 + 2)/2^14 is 1024.0001220703125.
TEST(OracleNorms, SegmentsThirtyTwoApartComeFirst) {
  const std::vector<float> row = row_with(16384, {{0, 4096}, {256, 1}, {33 * 256, 1}});
  EXPECT_EQ(norm_factor(row, -1023.0001220703125f), 1);
}

// 2 · 0.5 · 1, or · (1 + 1).
TEST(OracleNorms, WeightsMayBeOneMore) {
  const std::vector<std::uint32_t> twos(8, 0x4000), ones(8, 0x3f80);
  EXPECT_EQ(normed_row(Type::bf16, twos, std::vector<float>(8, 1), false, 0), ones);
  EXPECT_EQ(normed_row(Type::bf16, twos, std::vector<float>(8, 1), true, 0), twos);
}

// 1 + 2^-8 is a tie between 1 and 1 + 2^-7, which a weight of f32 may be just above.
TEST(OracleNorms, WeightsAreNotRounded) {
  const std::vector<std::uint32_t> ones(8, 0x3f80), above(8, 0x3f81);
  EXPECT_EQ(normed_row(Type::bf16, ones, std::vector<float>(8, 0x1p-8f), true, 0), ones);
  EXPECT_EQ(normed_row(Type::bf16, ones, std::vector<float>(8, 0x1p-8f + 0x1p-20f), true, 0), above);
}

// 2^-60 has a factor of 2^60, so 1, by a γ of 2^100. The factor by γ first would be more than f32 has.
TEST(OracleNorms, ProductsAreMadeFromLeftToRight) {
  const std::vector<std::uint32_t> small(8, 0x2180), large(8, 0x7180);
  EXPECT_EQ(normed_row(Type::bf16, small, std::vector<float>(8, 0x1p100f), false, 0), large);
}

}  // namespace
}  // namespace weft::oracle
