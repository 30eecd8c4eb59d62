// The tests' own checkers must find faults.
#include <gtest/gtest.h>

#include <algorithm>

#include "support/cases.hpp"
#include "support/ranks.hpp"

namespace weft::test {
namespace {

Bytes reversed_order(const Prepared& prepared) {
  std::vector<Bytes> inputs = prepared.inputs;
  std::reverse(inputs.begin(), inputs.end());
  return reduce(prepared.call.type, prepared.call.op, inputs);
}

TEST(Checkers, RandomDataTellTheOrderOfSummation) {
  for (const DataType type : {DataType::bf16, DataType::f16, DataType::f32}) {
    for (int ranks = 3; ranks <= 8; ++ranks) {
      const ReduceOp op = ranks % 2 == 0 ? ReduceOp::avg : ReduceOp::sum;
      const Prepared prepared = prepare({.count = 4000, .type = type, .op = op, .fill = Fill::random}, ranks);
      expect_says(error_of([&] { expect_equal(prepared.call, prepared.expected, reversed_order(prepared)); }),
                  "elements wrong");
    }
  }
}

TEST(Checkers, RandomDataTellASumThatIsRoundedTwice) {
  for (const DataType type : {DataType::bf16, DataType::f16}) {
    const Prepared prepared = prepare({.count = 1000, .type = type, .fill = Fill::random}, 3);
    Bytes twice = reduce(type, ReduceOp::sum, std::span(prepared.inputs).first(2));
    twice = reduce(type, ReduceOp::sum, std::vector<Bytes>{twice, prepared.inputs[2]});
    expect_says(error_of([&] { expect_equal(prepared.call, prepared.expected, twice); }), "elements wrong");
  }
}

TEST(Checkers, RandomDataTellAnAverageOfASumThatIsRounded) {
  for (const DataType type : {DataType::bf16, DataType::f16}) {
    constexpr int ranks = 3;
    const Prepared prepared = prepare({.count = 1000, .type = type, .op = ReduceOp::avg, .fill = Fill::random}, ranks);
    const Format f = format_of(type);
    Bytes twice = reduce(type, ReduceOp::sum, prepared.inputs);
    for (std::size_t i = 0; i < prepared.call.count; ++i) {
      const double sum = value_of(f, static_cast<std::uint32_t>(get(twice, type, i)));
      put(twice, type, i, round_to(f, static_cast<float>(sum) / ranks));
    }
    expect_says(error_of([&] { expect_equal(prepared.call, prepared.expected, twice); }), "elements wrong");
  }
}

// Of i64 also elements whose lower halves would give another result, and of u8 some that have no sign.
TEST(Checkers, DataOfIntegersTellEveryBitAndTheSign) {
  for (const Fill fill : {Fill::random, Fill::bits, Fill::special}) {
    const Bytes longest = input_of({.count = 500, .type = DataType::i64, .fill = fill}, 1);
    const Bytes bytes = input_of({.count = 500, .type = DataType::u8, .fill = fill}, 1);
    bool negative = false, large = false, most = false;
    for (std::size_t i = 0; i < 500; ++i) {
      const auto number = static_cast<std::int64_t>(get(longest, DataType::i64, i));
      negative |= number < INT32_MIN;
      large |= number > INT32_MAX;
      most |= get(bytes, DataType::u8, i) == 255;
    }
    EXPECT_TRUE(negative && large && most) << static_cast<int>(fill);
  }
  for (const ReduceOp op : {ReduceOp::sum, ReduceOp::max, ReduceOp::min, ReduceOp::avg}) {
    for (const DataType type : {DataType::i64, DataType::u8}) {
      const Prepared prepared = prepare({.count = 500, .type = type, .op = op, .fill = Fill::special}, 3);
      std::vector<Bytes> flipped = prepared.inputs;
      for (Bytes& input : flipped)
        for (std::size_t i = size_of(type) - 1; i < input.size(); i += size_of(type)) input[i] ^= std::byte{0x80};
      const Bytes other = reduce(type, op, flipped);
      expect_says(error_of([&] { expect_equal(prepared.call, prepared.expected, other); }), "elements wrong");
    }
  }
}

TEST(Checkers, IntegersTellARankLeftOutOrCountedTwiceAndAShiftByOneElement) {
  for (const DataType type : kTypes) {
    const Prepared prepared = prepare({.count = 64, .type = type}, 4);
    const auto differs = [&](const std::vector<Bytes>& inputs) {
      return !error_of([&] {
                expect_equal(prepared.call, prepared.expected, reduce(type, ReduceOp::sum, inputs));
              }).empty();
    };
    EXPECT_TRUE(differs({prepared.inputs[0], prepared.inputs[1], prepared.inputs[2]}));
    EXPECT_TRUE(differs({prepared.inputs[0], prepared.inputs[1], prepared.inputs[2], prepared.inputs[2]}));
    std::vector<Bytes> shifted = prepared.inputs;
    std::rotate(shifted[1].begin(), shifted[1].begin() + static_cast<std::ptrdiff_t>(size_of(type)), shifted[1].end());
    EXPECT_TRUE(differs(shifted));
  }
}

TEST(Checkers, SpecialDataHoldWhatTheyPromise) {
  for (const DataType type : {DataType::bf16, DataType::f16, DataType::f32}) {
    const Case c{.count = 5000, .type = type, .fill = Fill::special};
    const Prepared prepared = prepare(c, 2);
    const Format f = format_of(type);
    const auto has = [&](const Bytes& bytes, std::uint32_t bits) {
      for (std::size_t i = 0; i < c.count; ++i) {
        if (get(bytes, type, i) == bits) return true;
      }
      return false;
    };
    const std::uint32_t all_ones = f.sign_bit() | f.nan();
    for (const std::uint32_t bits : {0u, f.sign_bit(), 1u, f.infinity(), f.infinity() + 1, all_ones}) {
      EXPECT_TRUE(has(prepared.inputs[0], bits)) << bits;
    }
    // An aligned word or pack of the resting bits.
    std::size_t packs = 0;
    for (std::size_t i = 0; i + 16 <= prepared.inputs[0].size(); i += 16) {
      packs += std::all_of(&prepared.inputs[0][i], &prepared.inputs[0][i] + 16,
                           [](std::byte byte) { return byte == std::byte{0xff}; });
    }
    EXPECT_GT(packs, 0u);
    for (const std::uint32_t bits : {0u, f.sign_bit(), f.infinity(), f.nan()}) {
      EXPECT_TRUE(has(prepared.expected, bits)) << bits;
    }
  }
}

TEST(Checkers, TensorsTellEveryKindOfStrayWrite) {
  const Prepared prepared = prepare({.count = 10, .type = DataType::bf16, .input_shift = 1, .output_shift = 3}, 1);
  const auto after = [&](auto&& misdeed) {
    Tensors tensors(prepared.call, prepared.inputs[0]);
    std::copy(prepared.expected.begin(), prepared.expected.end(), tensors.output.content().begin());
    misdeed(tensors);
    return error_of([&] { tensors.check(prepared, 0); });
  };
  EXPECT_EQ(after([](Tensors&) {}), "");
  expect_says(after([](Tensors& t) { *t.output.content().end() = std::byte{0}; }), "byte 20 of a tensor");
  expect_says(after([](Tensors& t) { *(t.output.content().begin() - 1) = std::byte{0}; }), "byte -1 of a tensor");
  expect_says(after([](Tensors& t) { *t.input.content().end() = std::byte{0}; }), "byte 20 of a tensor");
  expect_says(after([](Tensors& t) { t.input.content()[4] ^= std::byte{1}; }), "the input was changed");
  expect_says(after([](Tensors& t) { t.output.content()[19] ^= std::byte{1}; }), "1 elements wrong, first [9]");
}

}  // namespace
}  // namespace weft::test
