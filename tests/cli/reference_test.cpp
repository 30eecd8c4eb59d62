// The benchmark's own reference. A benchmark that accepts wrong results is worse than none.
#include "workloads/reference.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "oracle/number.hpp"

namespace weft::cli {
namespace {

constexpr DataType kTypes[] = {DataType::bf16, DataType::f16, DataType::f32,
                               DataType::i32,  DataType::i64, DataType::u8};

std::vector<std::byte> reference(const ReferenceArgs& args) {
  std::vector<std::byte> result(args.count * size_of(args.type));
  reduce_reference(args, 0, args.count, result.data());
  return result;
}

TEST(Reference, IsTheNearestBf16ToTheExactSum) {
  const ReferenceArgs args{.count = 5000, .data = Data::random, .ranks = 3};
  const auto got = reference(args);
  int rounded = 0;
  for (std::size_t i = 0; i < args.count; ++i) {
    double exact = 0;
    for (int r = 0; r < args.ranks; ++r) exact += pattern::number(args.data, args.type, pattern::hash(r, 0, i));
    EXPECT_LE(std::fabs(oracle::number_at(got, args.type, i) - exact), std::fabs(exact) * 0x1p-8 * 1.001) << i;
    rounded += oracle::number_at(got, args.type, i) != exact;
  }
  EXPECT_GT(rounded, 1000);  // else the data would not distinguish rounding from truncation
}

TEST(Reference, IsTheNearestF16ToTheExactSum) {
  const ReferenceArgs args{.count = 5000, .type = DataType::f16, .data = Data::random, .ranks = 72};
  const auto got = reference(args);
  int rounded = 0;
  for (std::size_t i = 0; i < args.count; ++i) {
    double exact = 0;
    for (int r = 0; r < args.ranks; ++r) exact += pattern::number(args.data, args.type, pattern::hash(r, 0, i));
    EXPECT_LE(std::fabs(oracle::number_at(got, args.type, i) - exact), std::max(std::fabs(exact) * 0x1p-11, 0x1p-25))
        << i;
    rounded += oracle::number_at(got, args.type, i) != exact;
  }
  EXPECT_GT(rounded, 500);
}

TEST(Reference, InputsAreExactInEveryType) {
  // One rank's "sum" is its input. Values that are not representable would need two conversions that agree by luck.
  for (const auto type : kTypes) {
    const ReferenceArgs args{.count = 4096, .type = type, .data = Data::random};
    std::vector<std::byte> input(args.count * size_of(type));
    fill(input.data(), 0, args.count, type, args.data, 0, 0);
    EXPECT_EQ(input, reference(args));
    for (std::size_t i = 0; i < args.count && is_floating(type); ++i)
      EXPECT_EQ(oracle::number_at(input, type, i), pattern::number(args.data, type, pattern::hash(0, 0, i)));
  }
}

TEST(Reference, RanksAndStepsDiffer) {
  std::vector<std::byte> a(2000), b(2000), c(2000);
  fill(a.data(), 0, 1000, DataType::bf16, Data::integers, 0, 0);
  fill(b.data(), 0, 1000, DataType::bf16, Data::integers, 1, 0);
  fill(c.data(), 0, 1000, DataType::bf16, Data::integers, 0, 1);
  EXPECT_NE(a, b);
  EXPECT_NE(a, c);
}

TEST(Reference, SlicesMakeTheWhole) {
  for (const auto type : kTypes) {
    const ReferenceArgs args{.count = 1001, .type = type, .op = ReduceOp::max, .data = Data::random, .ranks = 4};
    std::vector<std::byte> parts(args.count * size_of(type));
    reduce_reference(args, 0, 500, parts.data());
    reduce_reference(args, 500, 1001, parts.data());
    EXPECT_EQ(parts, reference(args));
  }
}

TEST(Compare, FindsASingleWrongBit) {
  for (const auto type : kTypes) {
    const ReferenceArgs args{.count = 777, .type = type, .ranks = 4};
    const auto right = reference(args);
    EXPECT_EQ(compare(args, right, right, true), "");
    auto wrong = right;
    wrong[500 * size_of(type)] ^= std::byte{1};
    EXPECT_NE(compare(args, right, wrong, true).find("1 of 777 elements wrong, first [500]"), std::string::npos);
  }
}

TEST(Compare, ToleranceTakesARoundingAndNoMore) {
  const ReferenceArgs args{.count = 100, .type = DataType::bf16, .data = Data::random, .ranks = 4};
  const auto right = reference(args);
  auto off = right;
  off[20] ^= std::byte{1};  // the last place of element 10
  EXPECT_EQ(compare(args, right, off, false), "");
  EXPECT_NE(compare(args, right, off, true), "");
  auto wrong = right;
  wrong[21] ^= std::byte{0x80};  // the sign
  EXPECT_NE(compare(args, right, wrong, false), "");
  auto poisoned = right;
  poisoned[20] = poisoned[21] = std::byte{0xff};  // NaN: never written
  EXPECT_NE(compare(args, right, poisoned, false), "");
}

TEST(Compare, MaxHasNoTolerance) {
  for (const ReduceOp op : {ReduceOp::max, ReduceOp::min}) {
    const ReferenceArgs args{.count = 100, .op = op, .data = Data::random, .ranks = 4};
    const auto right = reference(args);
    auto off = right;
    off[20] ^= std::byte{1};
    EXPECT_NE(compare(args, right, off, false), "");
  }
}

// A double does not tell neighbours of i64 apart.
TEST(Compare, IntegersHaveNoTolerance) {
  for (const ReduceOp op : {ReduceOp::sum, ReduceOp::avg}) {
    const ReferenceArgs args{.count = 100, .type = DataType::i64, .op = op, .data = Data::random, .ranks = 4};
    const auto right = reference(args);
    auto off = right;
    off[80] ^= std::byte{1};
    EXPECT_NE(compare(args, right, off, false), "");
  }
}

// Each rank's number halved, and then added, with roundings of bf16 between.
TEST(Compare, ToleranceOfAveragesTakesRoundingsAndNoMore) {
  const ReferenceArgs args{.count = 100, .op = ReduceOp::avg, .data = Data::random, .ranks = 3};
  const auto right = reference(args);
  auto off = right;
  off[20] ^= std::byte{1};
  EXPECT_EQ(compare(args, right, off, false), "");
  auto sums = args;
  sums.op = ReduceOp::sum;
  EXPECT_NE(compare(args, right, reference(sums), false), "");
}

}  // namespace
}  // namespace weft::cli
