// The oracle's scales and e4m3 rows, against numbers worked out by hand.
#include "oracle/fp8.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace weft::oracle {
namespace {

void expect_scale(float largest, bool power_of_two, float scale, float inverse) {
  const Scale got = scale_of(largest, power_of_two);
  EXPECT_EQ(got.scale, scale) << largest;
  EXPECT_EQ(got.inverse, inverse) << largest;
}

// 448/448 and 896/448; below 1e-4 there is no smaller scale: 448/1e-4 is 4,480,000.
TEST(OracleFp8, Scales) {
  expect_scale(448, false, 1, 1);
  expect_scale(896, false, 2, 0.5f);
  expect_scale(0, false, 0x1.df595ap-23f, 4480000);  // 1e-4/448 is 2.232143e-7
}

// 0.875/448 is 2^-9.
TEST(OracleFp8, FloorsAreTheCallers) {
  for (const bool power_of_two : {false, true}) {
    EXPECT_EQ(scale_of(0.5f, power_of_two, 0.875f).scale, 0x1p-9f);
    EXPECT_EQ(scale_of(0, power_of_two, 0.875f).inverse, 512);
    EXPECT_EQ(scale_of(448, power_of_two, 0.875f).scale, 1);
  }
  const std::vector<float> zero{0};
  EXPECT_EQ(cast_row(zero, 1, Scales::f32, 0.875f).scales, stored({0x1p-9f, 512}, Scales::f32));
  EXPECT_EQ(cast_row(zero, 1, Scales::f32).scales, cast_row(zero, 1, Scales::f32, 1e-4f).scales);
}

// 1/448 is not exact in f32, and 1 by that 447.99997; the inverse is 448 by 1.
TEST(OracleFp8, InversesAreRoundedOnce) {
  EXPECT_EQ(scale_of(1, false).inverse, 448);
}

// 448/448 is 2^0, just above it 2^1 is the next power of two; 224/448 is 2^-1.
TEST(OracleFp8, PowersOfTwo) {
  expect_scale(448, true, 1, 1);
  expect_scale(449, true, 2, 0.5f);
  expect_scale(224, true, 0.5f, 2);
  expect_scale(INFINITY, true, 0x1p127f, 0);
}

TEST(OracleFp8, StoredScales) {
  EXPECT_EQ(stored({1, 1}, Scales::ue8m0), (Bytes{std::byte{127}}));
  EXPECT_EQ(stored({0.5f, 2}, Scales::ue8m0), (Bytes{std::byte{126}}));
  EXPECT_EQ(stored({0x1p127f, 0}, Scales::ue8m0), (Bytes{std::byte{254}}));
  // f32's 1 is 0x3f800000.
  for (const Scales how : {Scales::f32, Scales::powers_of_two})
    EXPECT_EQ(stored({1, 1}, how), (Bytes{std::byte{0}, std::byte{0}, std::byte{0x80}, std::byte{0x3f}}));
}

TEST(OracleFp8, NanIsNoMagnitude) {
  EXPECT_EQ(largest_magnitude(std::vector<float>{NAN, -448, 3}), 448);
  EXPECT_EQ(largest_magnitude(std::vector<float>{3, NAN}), 3);
  EXPECT_EQ(largest_magnitude(std::vector<float>{NAN}), 0);
}

// The first four columns have a scale of 1, the others of 2: 448 is 0x7e and 1 is 0x38 there; 896/2 is 448, 1/2 is
// 0x30.
TEST(OracleFp8, EveryGroupOfColumnsHasItsScale) {
  const std::vector<float> row{448, 1, -1, 1, 1, 896, 1, NAN};
  const Fp8Row cast = cast_row(row, 4, Scales::ue8m0);
  const std::vector<int> numbers{0x7e, 0x38, 0xb8, 0x38, 0x30, 0x7e, 0x30, 0x7f};
  ASSERT_EQ(cast.numbers.size(), numbers.size());
  for (std::size_t i = 0; i < numbers.size(); ++i) EXPECT_EQ(std::to_integer<int>(cast.numbers[i]), numbers[i]) << i;
  EXPECT_EQ(cast.scales, (Bytes{std::byte{127}, std::byte{128}}));
  EXPECT_EQ(cast_row(row, 8, Scales::f32).scales.size(), 4u);
  // The same numbers, with the scales 1 and 2 in f32.
  const Fp8Row words = cast_row(row, 4, Scales::powers_of_two);
  EXPECT_EQ(words.numbers, cast.numbers);
  EXPECT_EQ(words.scales, (Bytes{std::byte{0}, std::byte{0}, std::byte{0x80}, std::byte{0x3f}, std::byte{0},
                                 std::byte{0}, std::byte{0}, std::byte{0x40}}));
  const std::vector<float> between{449};  // 449/448 is no power of two, and 2 the next one
  EXPECT_EQ(cast_row(between, 1, Scales::powers_of_two).scales, stored({2, 0.5f}, Scales::f32));
  EXPECT_NE(cast_row(between, 1, Scales::f32).scales, stored({2, 0.5f}, Scales::f32));
}

// 3 by 2 is 1.5: 2^0 · (1 + 4/8).
TEST(OracleFp8, OneScaleForEverything) {
  EXPECT_EQ(cast_row(std::vector<float>{3}, 2.0f), (Bytes{std::byte{0x3c}}));
}

}  // namespace
}  // namespace weft::oracle
