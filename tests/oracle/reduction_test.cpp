// The oracle's sums and maxima, against bits worked out by hand.
#include "oracle/reduction.hpp"

#include <gtest/gtest.h>

namespace weft::oracle {
namespace {

std::uint32_t reduced(Type type, Op op, const std::vector<std::uint32_t>& values) {
  return reduce_element(type, op, values);
}

// In f32, 1 + 2^24 is a tie that goes to 2^24; less 2^24 nothing is left. From the other end, 1 is. In double, too.
TEST(OracleReductions, SumsAreOfF32InRankOrder) {
  EXPECT_EQ(reduced(Type::f32, Op::sum, {0x3f800000, 0x4b800000, 0xcb800000}), 0u);
  EXPECT_EQ(reduced(Type::f32, Op::sum, {0xcb800000, 0x4b800000, 0x3f800000}), 0x3f800000u);
}

// bf16 has 256 and 258: rounded after each addition, 256 + 1 + 1 would stay 256.
TEST(OracleReductions, SumsAreRoundedOnce) {
  EXPECT_EQ(reduced(Type::bf16, Op::sum, {0x4380, 0x3f80, 0x3f80}), 0x4381u);
}

TEST(OracleReductions, SumsOfSpecialValues) {
  EXPECT_EQ(reduced(Type::f16, Op::sum, {0x7bff, 0x7bff}), 0x7c00u);   // 131008 is more than f16 has
  EXPECT_EQ(reduced(Type::bf16, Op::sum, {0x7f80, 0xff80}), 0x7fffu);  // ∞ − ∞
  EXPECT_EQ(reduced(Type::bf16, Op::sum, {0x8000, 0x8000}), 0x8000u);  // −0 − 0
  EXPECT_EQ(reduced(Type::f16, Op::sum, {0xfe01}), 0x7fffu);           // one rank alone has the one NaN, too
}

TEST(OracleReductions, MaximaLetNanWin) {
  EXPECT_EQ(reduced(Type::bf16, Op::max, {0x7fc1, 0x4000}), 0x7fffu);
  EXPECT_EQ(reduced(Type::bf16, Op::max, {0x4000, 0xffc1, 0x4000}), 0x7fffu);
}

TEST(OracleReductions, MaximaOrderZeros) {
  EXPECT_EQ(reduced(Type::f16, Op::max, {0x8000, 0x0000}), 0x0000u);
  EXPECT_EQ(reduced(Type::f16, Op::max, {0x0000, 0x8000}), 0x0000u);
  EXPECT_EQ(reduced(Type::f16, Op::max, {0x8000, 0x8000}), 0x8000u);
  EXPECT_EQ(reduced(Type::f16, Op::max, {0xbc00, 0xc000}), 0xbc00u);  // −1 and −2
}

TEST(OracleReductions, IntegersWrapAroundAndHaveASign) {
  EXPECT_EQ(reduced(Type::i32, Op::sum, {0xffffffff, 2}), 1u);
  EXPECT_EQ(reduced(Type::i32, Op::sum, {0x7fffffff, 1}), 0x80000000u);
  EXPECT_EQ(reduced(Type::i32, Op::max, {0xffffffff, 1}), 1u);
  EXPECT_EQ(reduced(Type::i32, Op::max, {0x80000000, 0xffffffff}), 0xffffffffu);
}

// 1 + 2 and −1 + 1, as bf16.
TEST(OracleReductions, TensorsElementByElement) {
  std::vector<Bytes> inputs(2, Bytes(4));
  put(inputs[0], Type::bf16, 0, 0x3f80);
  put(inputs[0], Type::bf16, 1, 0xbf80);
  put(inputs[1], Type::bf16, 0, 0x4000);
  put(inputs[1], Type::bf16, 1, 0x3f80);
  const Bytes sums = reduce(Type::bf16, Op::sum, inputs);
  EXPECT_EQ(get(sums, Type::bf16, 0), 0x4040u);
  EXPECT_EQ(get(sums, Type::bf16, 1), 0u);
}

}  // namespace
}  // namespace weft::oracle
