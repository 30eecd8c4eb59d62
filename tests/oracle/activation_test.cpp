// The activation, by hand: e^ln 3 is 3, and silu(64) is 64 in every format.
#include "oracle/activation.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace weft::oracle {
namespace {

Bytes gate_up_of(const std::vector<double>& gate_up, Type type = Type::bf16) {
  Bytes row(gate_up.size() * bytes_of(type));
  for (std::size_t i = 0; i < gate_up.size(); ++i) put(row, type, i, round_to(format_of(type), gate_up[i]));
  return row;
}
RightBits exactly(float value) {
  const std::uint64_t bits = round_to(format_of(Type::f32), value);
  return {bits, bits};
}

TEST(OracleActivation, IsSiluTimesUp) {
  EXPECT_DOUBLE_EQ(silu_mul(std::log(3.0), 4), 3 * std::log(3.0));
  EXPECT_DOUBLE_EQ(silu_mul(-std::log(3.0), 4), -std::log(3.0));
  EXPECT_EQ(silu_mul(64, -3), -192);
}

TEST(OracleActivation, HasLimits) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  EXPECT_EQ(silu_mul(kInfinite, 2), kInfinite);
  EXPECT_EQ(silu_mul(-kInfinite, 2), 0);
  EXPECT_TRUE(std::signbit(silu_mul(-kInfinite, 2)));
  EXPECT_TRUE(std::isnan(silu_mul(std::nan(""), 2)));
}

// Gates, then ups. 65 · (1 + 2^-7) is 65.5078125, and 64.5 · 3 a tie of bf16.
TEST(OracleActivation, RowsAreRounded) {
  const std::vector<RightBits> row =
      activated_row(Type::bf16, gate_up_of({64, 64, 0, 65, 64.5, 3, -0.5, 7, 1 + 0x1p-7, 3}));
  ASSERT_EQ(row.size(), 5u);
  EXPECT_EQ(row[0], exactly(192));
  EXPECT_EQ(row[1], exactly(-32));
  EXPECT_EQ(row[2], exactly(0));
  EXPECT_EQ(row[3], exactly(65.5));
  EXPECT_EQ(row[4], (RightBits{exactly(193).nearest, exactly(194).nearest}));
}

// Three units of f32 are 4.5 of those of 192, which is 0x43400000: a tie, so 4.
TEST(OracleActivation, HasThreeUnits) {
  EXPECT_EQ(activated_row(Type::f32, gate_up_of({64, 3}, Type::f32)), (std::vector{RightBits{0x433ffffc, 0x43400004}}));
}

// silu(−90) is about −7 · 10^-38, and may be −0.
TEST(OracleActivation, MayBeNothingBelow) {
  const std::vector<RightBits> row = activated_row(Type::bf16, gate_up_of({-90, 1}));
  EXPECT_EQ(row[0].nearest, 0x80000000u);
  EXPECT_GT(row[0].farthest, 0x80000000u);
}

// A scale of 384 / 448 makes 448 of 384. Each bit that comes back is known but the last few.
TEST(OracleActivation, ScalesOfF32HaveUnits) {
  const RightBits right = activated_row(Type::bf16, gate_up_of({64, 6}), 1, Scales::f32)[0];
  EXPECT_TRUE(right.contain(exactly(384).nearest));
  EXPECT_GE(right.nearest, exactly(384).nearest - 16);
  EXPECT_LE(right.farthest, exactly(384).nearest + 16);
}

// 384 and 1/16 have a scale of 1, and 1024 times as much one of 1024. With that the 1/16 would be 0.
TEST(OracleActivation, EachGroupHasItsScale) {
  const Bytes gate_up = gate_up_of({64, 64, 64, 64, 6, 0x1p-10, 6144, 1});
  for (const Scales scales : {Scales::powers_of_two, Scales::ue8m0}) {
    const std::vector<RightBits> row = activated_row(Type::bf16, gate_up, 2, scales);
    ASSERT_EQ(row.size(), 4u);
    EXPECT_EQ(row[0], exactly(384));
    EXPECT_EQ(row[1], exactly(0x1p-4f));
    EXPECT_EQ(row[2], exactly(384 * 1024));
    EXPECT_EQ(row[3], exactly(64));
  }
}

}  // namespace
}  // namespace weft::oracle
