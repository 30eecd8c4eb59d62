// The oracle's numbers, against bits worked out by hand.
#include "oracle/number.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace weft::oracle {
namespace {

constexpr Format kBf16{8, 7}, kF16{5, 10}, kF32{8, 23};

TEST(OracleNumbers, FormatsOfTypes) {
  const auto expect = [](Type type, int exponent_bits, int fraction_bits, std::size_t bytes) {
    EXPECT_EQ(format_of(type).exponent_bits, exponent_bits);
    EXPECT_EQ(format_of(type).fraction_bits, fraction_bits);
    EXPECT_EQ(bytes_of(type), bytes);
  };
  expect(Type::bf16, 8, 7, 2);
  expect(Type::f16, 5, 10, 2);
  expect(Type::f32, 8, 23, 4);
  EXPECT_EQ(bytes_of(Type::i32), 4u);
  EXPECT_EQ(bytes_of(Type::i64), 8u);
  EXPECT_EQ(bytes_of(Type::u8), 1u);
}

TEST(OracleNumbers, IntegersOfBits) {
  EXPECT_EQ(integer_of(Type::u8, 0xff), 255);
  EXPECT_EQ(integer_of(Type::i32, 0xfffffffe), -2);
  EXPECT_EQ(integer_of(Type::i64, 0xfffffffe), 0xfffffffe);
  EXPECT_EQ(integer_of(Type::i64, 0xfffffffffffffffe), -2);
}

// Sign, exponent and fraction apart: 0x3f80 is 0 | 127 | 0, so 2^(127 − 127); 0x3c00 is 0 | 15 | 0, so 2^(15 − 15).
TEST(OracleNumbers, ValuesOfBits) {
  EXPECT_EQ(value_of(kBf16, 0x3f80), 1);
  EXPECT_EQ(value_of(kBf16, 0xc040), -3);  // −2^1 · (1 + 64/128)
  EXPECT_EQ(value_of(kBf16, 0x0001), 0x1p-133);
  EXPECT_EQ(value_of(kF16, 0x3c00), 1);
  EXPECT_EQ(value_of(kF16, 0x7bff), 65504);           // 2^15 · (1 + 1023/1024)
  EXPECT_EQ(value_of(kF16, 0x03ff), 1023 * 0x1p-24);  // subnormal: units of 2^(1 − 15 − 10)
  EXPECT_EQ(value_of(kF16, 0x0400), 0x1p-14);
  EXPECT_EQ(value_of(kF16, 0xfc00), -INFINITY);
  EXPECT_TRUE(std::isnan(value_of(kF16, 0x7c01)));
  EXPECT_TRUE(std::signbit(value_of(kF16, 0x8000)));
  EXPECT_EQ(value_of(kF32, 0x3f800001), 1 + 0x1p-23);
}

// Neighbours of 1 are 2^-7 apart in bf16, 2^-10 in f16: half of that is a tie, and the even one of both is taken.
TEST(OracleNumbers, TiesGoToTheEvenNeighbour) {
  EXPECT_EQ(round_to(kBf16, 1 + 0x1p-8), 0x3f80u);
  EXPECT_EQ(round_to(kBf16, 1 + 3 * 0x1p-8), 0x3f82u);
  EXPECT_EQ(round_to(kF16, 1 + 0x1p-11), 0x3c00u);
  EXPECT_EQ(round_to(kF16, -1 - 3 * 0x1p-11), 0xbc02u);
  EXPECT_EQ(round_to(kF32, 16777217), 0x4b800000u);  // 2^24 + 1, between 2^24 and 2^24 + 2
}

TEST(OracleNumbers, RoundsToTheNearest) {
  EXPECT_EQ(round_to(kBf16, 1 + 0x1p-8 + 0x1p-30), 0x3f81u);  // a hair above the tie
  EXPECT_EQ(round_to(kBf16, 1 + 3 * 0x1p-8 - 0x1p-30), 0x3f81u);
  EXPECT_EQ(round_to(kBf16, 2 - 0x1p-9), 0x4000u);  // above the last number of the binade: 2
  EXPECT_EQ(round_to(kBf16, 0), 0u);
  EXPECT_EQ(round_to(kBf16, -0.0), 0x8000u);
}

// Units of 2^-24 below 2^-14: half a unit is a tie between 0 and 1, one and a half between 1 and 2.
TEST(OracleNumbers, SubnormalsRoundInTheirUnit) {
  EXPECT_EQ(round_to(kF16, 0x1p-24), 1u);
  EXPECT_EQ(round_to(kF16, 0x1p-25), 0u);
  EXPECT_EQ(round_to(kF16, 3 * 0x1p-25), 2u);
  EXPECT_EQ(round_to(kF16, 1023.75 * 0x1p-24), 0x0400u);
  EXPECT_EQ(round_to(kF16, -0x1p-60), 0x8000u);
}

// The largest f16 is 65504, and the next number would be 65536: from 65520 on the result is infinite.
TEST(OracleNumbers, WhatIsTooLargeIsInfinite) {
  EXPECT_EQ(round_to(kF16, 65519.99), 0x7bffu);
  EXPECT_EQ(round_to(kF16, 65520), 0x7c00u);
  EXPECT_EQ(round_to(kF16, -1e9), 0xfc00u);
  EXPECT_EQ(round_to(kBf16, INFINITY), 0x7f80u);
}

TEST(OracleNumbers, ThereIsOneNan) {
  EXPECT_EQ(round_to(kBf16, NAN), 0x7fffu);
  EXPECT_EQ(round_to(kF16, -NAN), 0x7fffu);
  EXPECT_EQ(round_to(kF32, NAN), 0x7fffffffu);
}

// e4m3 has a bias of 7, so 1 is 7 << 3; units of 1/8 there, and of 2^-9 below 2^-6.
TEST(OracleNumbers, E4m3) {
  EXPECT_EQ(round_to_e4m3(1), 0x38);
  EXPECT_EQ(round_to_e4m3(-240), 0xf7);  // −2^7 · (1 + 7/8)
  EXPECT_EQ(round_to_e4m3(1 + 1.0 / 16), 0x38);
  EXPECT_EQ(round_to_e4m3(1 + 3.0 / 16), 0x3a);
  EXPECT_EQ(round_to_e4m3(0x1p-9), 0x01);
  EXPECT_EQ(round_to_e4m3(0x1p-10), 0x00);
  EXPECT_EQ(round_to_e4m3(3 * 0x1p-10), 0x02);
  EXPECT_EQ(round_to_e4m3(-0.0), 0x80);
}

// The largest is 2^8 · (1 + 6/8): the pattern behind it is NaN.
TEST(OracleNumbers, E4m3HasNoInfinity) {
  EXPECT_EQ(round_to_e4m3(448), 0x7e);
  EXPECT_EQ(round_to_e4m3(470), 0x7e);
  EXPECT_EQ(round_to_e4m3(-INFINITY), 0xfe);
  EXPECT_EQ(round_to_e4m3(NAN), 0x7f);
  EXPECT_EQ(round_to_e4m3(-NAN), 0x7f);
}

TEST(OracleNumbers, ElementsAreLittleEndian) {
  const Bytes tensor{std::byte{0}, std::byte{0}, std::byte{0x80}, std::byte{0xbf}};
  EXPECT_EQ(get(tensor, Type::bf16, 1), 0xbf80u);
  EXPECT_EQ(number_at(tensor, Type::bf16, 1), -1);
  EXPECT_EQ(number_at(tensor, Type::f32, 0), -1);
  Bytes written(4);
  put(written, Type::f16, 1, 0x1234);
  EXPECT_EQ(written, (Bytes{std::byte{0}, std::byte{0}, std::byte{0x34}, std::byte{0x12}}));
  EXPECT_EQ(number_at(Bytes(4, std::byte{0xff}), Type::i32, 0), -1);
  Bytes longest(16);
  put(longest, Type::i64, 1, 0xfffffffe00000003);
  EXPECT_EQ(longest[8], std::byte{3});
  EXPECT_EQ(longest[12], std::byte{0xfe});
  EXPECT_EQ(get(longest, Type::i64, 1), 0xfffffffe00000003u);
  EXPECT_EQ(number_at(longest, Type::i64, 1), -0x1p33 + 3);
  EXPECT_EQ(get(tensor, Type::u8, 3), 0xbfu);
  EXPECT_EQ(number_at(tensor, Type::u8, 3), 191);
  put(written, Type::u8, 1, 0x56);
  EXPECT_EQ(written, (Bytes{std::byte{0}, std::byte{0x56}, std::byte{0x34}, std::byte{0x12}}));
}

}  // namespace
}  // namespace weft::oracle
