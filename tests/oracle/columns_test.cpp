// Elements of columns and their changes, by hand. The words of f32 are 1 = 0x3f800000, and 30 = 0x41f00000.
#include "oracle/columns.hpp"

#include <gtest/gtest.h>

namespace weft::oracle {
namespace {

constexpr RightBits only(std::uint64_t bits) {
  return {bits, bits};
}

TEST(OracleColumns, KeepTheirBits) {
  EXPECT_EQ(changed_element({Type::bf16, Type::bf16}, 0xffc1), only(0xffc1));
  EXPECT_EQ(changed_element({Type::i64, Type::i64}, 0x8000000000000001), only(0x8000000000000001));
  EXPECT_EQ(changed_element({Type::u8, Type::u8}, 0xff), only(0xff));
}

// 1.5 as bf16, as f16, and as f32.
TEST(OracleColumns, AreWidened) {
  EXPECT_EQ(changed_element({Type::bf16, Type::f32}, 0x3fc0), only(0x3fc00000));
  EXPECT_EQ(changed_element({Type::f16, Type::f32}, 0x3e00), only(0x3fc00000));
}

// 3 · s = 1 + 2^-8 + 2^-24: a tie in f32, which becomes 1 + 2^-8, and that is a tie in bf16, which becomes 1.
TEST(OracleColumns, AreScaledInF32) {
  EXPECT_EQ(changed_element({Type::bf16, Type::bf16, 11228502 * 0x1p-25f}, 0x4040), only(0x3f80));
  EXPECT_EQ(changed_element({Type::bf16, Type::f32, 0.25f}, 0xbf80), only(0xbe800000));
}

// tanh(20) is 1 in every format. 3 · 30 · 2^-23 are 5.625 units of 30, and round to 6.
TEST(OracleColumns, AreCappedAfterTheyAreScaled) {
  EXPECT_EQ(changed_element({Type::bf16, Type::f32, 600, 30}, 0x3f80), (RightBits{0x41effffa, 0x41f00006}));
  EXPECT_EQ(changed_element({Type::bf16, Type::bf16, 600, 30}, 0xbf80), only(0xc1f0));
}

// tanh of 2^-33 is as good as itself: 2^-30 comes out. Units in front of a power of two are half as large.
TEST(OracleColumns, HaveThreeUnits) {
  const RightBits right = changed_element({Type::f32, Type::f32, 1, 8}, 0x30800000);
  EXPECT_EQ(right, (RightBits{0x30800000 - 6, 0x30800000 + 3}));
  EXPECT_TRUE(right.contain(right.nearest) && right.contain(right.farthest));
  EXPECT_FALSE(right.contain(right.nearest - 1) || right.contain(right.farthest + 1) || right.contain(0xb0800000));
}

// A quotient of 1.5 · 2^-149 becomes 2^-148. 2^120 times that is 2^-28, and the cap makes 2^-27 of it.
TEST(OracleColumns, HaveAQuotientOfF32) {
  EXPECT_EQ(changed_element({Type::f32, Type::f32, 3 * 0x1p-149f, 2}, 0x7b800000),
            (RightBits{0x32000000 - 6, 0x32000000 + 3}));
}

// The smallest number, with a cap of 4: twelve units of it on either side, as far as there are some.
TEST(OracleColumns, HaveUnitsOfTheSmallestNumber) {
  EXPECT_EQ(changed_element({Type::f32, Type::f32, 1, 4}, 1), (RightBits{0, 13}));
  EXPECT_EQ(changed_element({Type::f32, Type::f32, 1, 4}, 0x80000001), (RightBits{0x80000000, 0x8000000d}));
}

TEST(OracleColumns, ZerosHaveTheirSign) {
  EXPECT_EQ(changed_element({Type::f32, Type::f32, 1, 4}, 0), only(0));
  EXPECT_EQ(changed_element({Type::f32, Type::f32, 1, 4}, 0x80000000), only(0x80000000));
  EXPECT_EQ(changed_element({Type::bf16, Type::f32, -1}, 0), only(0x80000000));
}

// ∞ · 0 is one, too.
TEST(OracleColumns, HaveOneNan) {
  EXPECT_EQ(changed_element({Type::bf16, Type::bf16, 2}, 0xff81), only(0x7fff));
  EXPECT_EQ(changed_element({Type::bf16, Type::f32}, 0xff81), only(0x7fffffff));
  EXPECT_EQ(changed_element({Type::f16, Type::f16, 1, 30}, 0xfe01), only(0x7fff));
  EXPECT_EQ(changed_element({Type::bf16, Type::bf16, 0}, 0x7f80), only(0x7fff));
  EXPECT_EQ(changed_element({Type::bf16, Type::bf16, 0, 30}, 0x7f80), only(0x7fff));
}

}  // namespace
}  // namespace weft::oracle
