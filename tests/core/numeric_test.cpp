// Conversions and reductions of the element types, against arithmetic in double.
#include "numeric/numeric.hpp"

#include <gtest/gtest.h>

#include <bit>

#include "support/reference.hpp"
#include "support/sanitized.hpp"

namespace weft::detail {
namespace {

using test::Format;

const Format bf16 = test::format_of(DataType::bf16), f16 = test::format_of(DataType::f16),
             f32 = test::format_of(DataType::f32);

std::uint32_t bits_of_f32(float value) {
  return std::bit_cast<std::uint32_t>(value);
}

TEST(Numeric, ReferenceAgreesWithTheProcessor) {
  for (std::uint64_t bits = 0; bits <= 0xffffffffu; bits += 65521) {
    const auto word = static_cast<std::uint32_t>(bits);
    const auto value = std::bit_cast<float>(word);
    if (value != value) continue;
    ASSERT_EQ(test::value_of(f32, word), value);
    ASSERT_EQ(test::round_to(f32, value), word);
  }
  for (double value = 1e-50; value < 1e40; value *= 1.0371) {
    ASSERT_EQ(test::round_to(f32, -value), bits_of_f32(static_cast<float>(-value))) << value;
  }
}

TEST(Numeric, EveryBf16AndF16PatternWidensExactly) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const double wanted_bf16 = test::value_of(bf16, bits), wanted_f16 = test::value_of(f16, bits);
    const float got_bf16 = bf16_to_f32(static_cast<std::uint16_t>(bits));
    const float got_f16 = f16_to_f32(static_cast<std::uint16_t>(bits));
    ASSERT_EQ(std::isnan(got_bf16), std::isnan(wanted_bf16)) << bits;
    ASSERT_EQ(std::isnan(got_f16), std::isnan(wanted_f16)) << bits;
    if (!std::isnan(wanted_bf16)) {
      ASSERT_EQ(got_bf16, wanted_bf16) << bits;
      ASSERT_EQ(std::signbit(got_bf16), bits >= 0x8000) << bits;
    }
    if (!std::isnan(wanted_f16)) {
      ASSERT_EQ(got_f16, wanted_f16) << bits;
      ASSERT_EQ(std::signbit(got_f16), bits >= 0x8000) << bits;
    }
  }
}

void expect_rounded(std::uint32_t word) {
  const auto value = std::bit_cast<float>(word);
  ASSERT_EQ(f32_to_bf16(value), test::round_to(bf16, value)) << std::hex << word;
  ASSERT_EQ(f32_to_f16(value), test::round_to(f16, value)) << std::hex << word;
}

TEST(Numeric, RoundsToNearestEven) {
  // Every value of both types, the ties between neighbours, and the numbers next to these.
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto at = bits_of_f32(f16_to_f32(static_cast<std::uint16_t>(bits)));
    const auto next = bits_of_f32(f16_to_f32(static_cast<std::uint16_t>(bits + 1)));
    const std::uint32_t tie = at + (next - at) / 2;  // halfway in bits is halfway in value within a binade
    for (const std::uint32_t word : {bits << 16, (bits << 16) + 0x7fff, (bits << 16) + 0x8000, (bits << 16) + 0x8001,
                                     at, at + 1, at - 1, tie, tie + 1, tie - 1}) {
      expect_rounded(word);
    }
  }
  // Subnormal ties of f16 are not halfway in f32's bits.
  for (std::uint32_t half_units = 0; half_units < 4096; ++half_units) {
    const auto word = bits_of_f32(std::ldexp(static_cast<float>(half_units), -25));
    for (const std::uint32_t near : {word, word + 1, word - (half_units != 0 ? 1 : 0)}) expect_rounded(near);
  }
  for (std::uint64_t word = 0; word <= 0xffffffffu; word += test::kSanitized ? 104729 : 4099) {
    expect_rounded(static_cast<std::uint32_t>(word));
  }
}

TEST(Numeric, NanIsCanonicalAndInfinityIsNot) {
  for (const std::uint32_t nan : {0x7f800001u, 0x7fc00000u, 0xffc12345u, 0xffffffffu}) {
    const auto value = std::bit_cast<float>(nan);
    EXPECT_EQ(f32_to_bf16(value), 0x7fff);
    EXPECT_EQ(f32_to_f16(value), 0x7fff);
    EXPECT_EQ(bits_of_f32(canonical(value)), 0x7fffffffu);
  }
  EXPECT_EQ(bits_of_f32(canonical(std::bit_cast<float>(0xff800000u))), 0xff800000u);
  EXPECT_EQ(bits_of_f32(canonical(-0.0f)), 0x80000000u);
}

TEST(Numeric, MaxOrdersZerosAndLetsNanWin) {
  const float nan = std::bit_cast<float>(0xffc00001u);
  EXPECT_EQ(bits_of_f32(max_defined(0.0f, -0.0f)), 0u);
  EXPECT_EQ(bits_of_f32(max_defined(-0.0f, 0.0f)), 0u);
  EXPECT_EQ(bits_of_f32(max_defined(-0.0f, -0.0f)), 0x80000000u);
  EXPECT_EQ(bits_of_f32(max_defined(nan, 1.0f)), 0x7fffffffu);
  EXPECT_EQ(bits_of_f32(max_defined(INFINITY, nan)), 0x7fffffffu);
  EXPECT_EQ(max_defined(-INFINITY, -3.0f), -3.0f);
  EXPECT_EQ(max_defined(2.0f, 1.0f), 2.0f);
}

TEST(Numeric, IntegersWrapAroundAndCompareSigned) {
  EXPECT_EQ(larger(0xffffffffu, 1u), 1u);
  EXPECT_EQ(larger(0x80000000u, 0xffffffffu), 0xffffffffu);
  EXPECT_EQ(larger(std::uint64_t{1} << 63, ~std::uint64_t{0}), ~std::uint64_t{0});
  EXPECT_EQ(larger(std::uint64_t{1} << 32, ~std::uint64_t{0}), std::uint64_t{1} << 32);
}

TEST(Numeric, FlippedOrderMakesAMinimumOfAMaximum) {
  const auto least = [](auto a, auto b) { return flipped(larger(flipped(a), flipped(b))); };
  EXPECT_EQ(least(3u, 0xfffffffeu), 0xfffffffeu);
  EXPECT_EQ(least(std::uint64_t{5}, std::uint64_t{1} << 63), std::uint64_t{1} << 63);
  EXPECT_EQ(bits_of_f32(least(0.0f, -0.0f)), 0x80000000u);
  EXPECT_EQ(least(-INFINITY, 3.0f), -INFINITY);
  EXPECT_TRUE(std::isnan(least(1.0f, std::numeric_limits<float>::quiet_NaN())));
}

TEST(Numeric, QuotientsOfIntegersAreRoundedTowardZero) {
  EXPECT_EQ(divided(7u, 2), 3u);
  EXPECT_EQ(divided(static_cast<std::uint32_t>(-7), 2), static_cast<std::uint32_t>(-3));
  EXPECT_EQ(divided(static_cast<std::uint64_t>(-7'000'000'000), 3), static_cast<std::uint64_t>(-2'333'333'333));
}

}  // namespace
}  // namespace weft::detail
