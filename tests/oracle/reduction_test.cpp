// The oracle's sums, averages, maxima and minima, against bits worked out by hand.
#include "oracle/reduction.hpp"

#include <gtest/gtest.h>

namespace weft::oracle {
namespace {

std::uint64_t reduced(Type type, Op op, const std::vector<std::uint64_t>& values) {
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

TEST(OracleReductions, MinimaLetNanWin) {
  EXPECT_EQ(reduced(Type::bf16, Op::min, {0x7fc1, 0x4000}), 0x7fffu);
  EXPECT_EQ(reduced(Type::bf16, Op::min, {0xc000, 0xffc1, 0xff80}), 0x7fffu);
}

TEST(OracleReductions, MinimaOrderZeros) {
  EXPECT_EQ(reduced(Type::f16, Op::min, {0x8000, 0x0000}), 0x8000u);
  EXPECT_EQ(reduced(Type::f16, Op::min, {0x0000, 0x8000}), 0x8000u);
  EXPECT_EQ(reduced(Type::f16, Op::min, {0x0000, 0x0000}), 0x0000u);
  EXPECT_EQ(reduced(Type::f16, Op::min, {0xbc00, 0xc000}), 0xc000u);  // −1 and −2
  EXPECT_EQ(reduced(Type::f32, Op::min, {0x3f800000, 0xff800000}), 0xff800000u);
}

// A third of 1 + 1 + 0 is 0.6…, 2^-1 · 1.01010…: the last bits of f32 are 01011, rounded up. Half of −0 − 0 is −0.
TEST(OracleReductions, AveragesAreSumsDividedInF32) {
  EXPECT_EQ(reduced(Type::f32, Op::avg, {0x3f800000, 0x3f800000, 0}), 0x3f2aaaabu);
  EXPECT_EQ(reduced(Type::f32, Op::avg, {0x3f800000, 0x4b800000, 0xcb800000}), 0u);  // the order of a sum
  EXPECT_EQ(reduced(Type::bf16, Op::avg, {0x8000, 0x8000}), 0x8000u);
  EXPECT_EQ(reduced(Type::bf16, Op::avg, {0x7fc1, 0x4000}), 0x7fffu);
  EXPECT_EQ(reduced(Type::f16, Op::avg, {0xfe01}), 0x7fffu);
}

// 256 + 128 + 5 is a tie in bf16, which goes to 388, and a third of it is 129; a third of 389 is 130. Twice the largest
// f16 is too large for f16, and half of it is not.
TEST(OracleReductions, AveragesAreRoundedOnce) {
  EXPECT_EQ(reduced(Type::bf16, Op::avg, {0x4380, 0x4300, 0x40a0}), 0x4302u);
  EXPECT_EQ(reduced(Type::f16, Op::avg, {0x7bff, 0x7bff}), 0x7bffu);
}

TEST(OracleReductions, AveragesOfIntegersGoTowardZero) {
  EXPECT_EQ(reduced(Type::i32, Op::avg, {0xfffffffd, 0}), 0xffffffffu);  // −3 by 2
  EXPECT_EQ(reduced(Type::i32, Op::avg, {0xffffffff, 0}), 0u);
  EXPECT_EQ(reduced(Type::i32, Op::avg, {3, 0}), 1u);
  EXPECT_EQ(reduced(Type::i64, Op::avg, {0xfffffffffffffff8, 0, 0}), 0xfffffffffffffffeu);  // −8 by 3
  EXPECT_EQ(reduced(Type::u8, Op::avg, {5, 6, 6}), 5u);
}

// 2^31 − 1 and 1 make −2^31, and half of that is −2^30. With 63 for 31 the same.
TEST(OracleReductions, AveragesOfI32AndI64DivideTheSumThatWrapped) {
  EXPECT_EQ(reduced(Type::i32, Op::avg, {0x7fffffff, 1}), 0xc0000000u);
  EXPECT_EQ(reduced(Type::i64, Op::avg, {0x7fffffffffffffff, 1}), 0xc000000000000000u);
}

// Half of 400 is 200, and half of 400 − 256 would be 72.
TEST(OracleReductions, AveragesOfU8DivideTheExactSum) {
  EXPECT_EQ(reduced(Type::u8, Op::avg, {200, 200}), 200u);
  EXPECT_EQ(reduced(Type::u8, Op::avg, {255, 255, 255, 254}), 254u);
}

TEST(OracleReductions, U8WrapsAndHasNoSign) {
  EXPECT_EQ(reduced(Type::u8, Op::sum, {255, 2}), 1u);
  EXPECT_EQ(reduced(Type::u8, Op::max, {127, 128}), 128u);
  EXPECT_EQ(reduced(Type::u8, Op::min, {127, 128}), 127u);
}

TEST(OracleReductions, I64WrapsAt64Bits) {
  EXPECT_EQ(reduced(Type::i64, Op::sum, {0xffffffff, 1}), 0x100000000u);
  EXPECT_EQ(reduced(Type::i64, Op::sum, {0x7fffffffffffffff, 1}), 0x8000000000000000u);
  EXPECT_EQ(reduced(Type::i64, Op::sum, {0xffffffffffffffff, 2}), 1u);
  EXPECT_EQ(reduced(Type::i64, Op::max, {0x8000000000000000, 0xffffffff}), 0xffffffffu);
  EXPECT_EQ(reduced(Type::i64, Op::min, {0x8000000000000000, 0xffffffff}), 0x8000000000000000u);
}

TEST(OracleReductions, IntegersWrapAroundAndHaveASign) {
  EXPECT_EQ(reduced(Type::i32, Op::sum, {0xffffffff, 2}), 1u);
  EXPECT_EQ(reduced(Type::i32, Op::sum, {0x7fffffff, 1}), 0x80000000u);
  EXPECT_EQ(reduced(Type::i32, Op::max, {0xffffffff, 1}), 1u);
  EXPECT_EQ(reduced(Type::i32, Op::max, {0x80000000, 0xffffffff}), 0xffffffffu);
  EXPECT_EQ(reduced(Type::i32, Op::min, {0xffffffff, 1}), 0xffffffffu);
  EXPECT_EQ(reduced(Type::i32, Op::min, {0x80000000, 0xffffffff}), 0x80000000u);
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
