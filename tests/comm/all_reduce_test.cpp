// all_reduce on CPU ranks: every world size, type, reduction and algorithm; counts around the borders of packs, shards
// and pieces; alignments; special numbers.
#include <gtest/gtest.h>

#include <cmath>

#include "support/case_lists.hpp"
#include "support/sanitized.hpp"
#include "support/world.hpp"

namespace weft::test {
namespace {

// Every rank makes all calls, one after the other.
void expect_right(int ranks, const Config& config, const std::vector<Case>& cases) {
  const std::vector<Prepared> prepared = prepare_all(cases, ranks);
  expect_all_well(run_world(ranks, config, [&](Communicator& communicator, int rank) {
    for (const Prepared& p : prepared) run_on_cpu_rank(communicator, p, rank);
  }));
}

// Small limits, so that pieces are small: 1 KiB one-shot, 2 KiB two-shot.
Config small_pieces() {
  Config config = cpu_config();
  config.one_shot_bytes = 1024;
  config.two_shot_bytes = 2048;
  return config;
}

class AllReduce : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, AllReduce, testing::Values(1, 2, 3, 4, 5, 6, 7, 8, 12, 16));

TEST_P(AllReduce, CountsAroundPacksShardsAndPieces) {
  expect_right(GetParam(), small_pieces(), cases_around_pieces(GetParam()));
}

TEST_P(AllReduce, EveryTypeReductionAndAlgorithmOnEveryKindOfData) {
  constexpr std::size_t counts[] = {512, 517};  // whole packs, and others
  expect_right(GetParam(), cpu_config(), cases_of_all_data(counts));
}

TEST_P(AllReduce, PointersOfEveryAlignment) {
  expect_right(GetParam(), cpu_config(), cases_of_all_alignments());
}

// The bytes on the wire are the same, so ranks may place their tensors differently.
TEST_P(AllReduce, PointersOfAnotherAlignmentOnEveryRank) {
  const int ranks = GetParam();
  std::vector<Case> cases;
  for (const DataType type : kTypes) {
    for (const Algorithm algorithm : kAlgorithms) {
      for (const std::size_t count : {640u, 99u}) {
        cases.push_back({.count = count, .type = type, .algorithm = algorithm, .fill = Fill::random});
      }
    }
  }
  const std::vector<Prepared> prepared = prepare_all(cases, ranks);
  expect_all_well(run_world(ranks, cpu_config(), [&](Communicator& communicator, int rank) {
    for (std::size_t i = 0; i < prepared.size(); ++i) {
      Prepared mine = prepared[i];
      mine.call.input_shift = (static_cast<std::size_t>(rank) + i) % 3;
      mine.call.output_shift = (static_cast<std::size_t>(rank) + i) / 3 % 2;
      mine.call.in_place = (static_cast<std::size_t>(rank) + i) % 5 == 4;
      run_on_cpu_rank(communicator, mine, rank);
    }
  }));
}

TEST_P(AllReduce, LargeMessagesWithDefaultLimits) {
  const int ranks = GetParam();
  std::vector<Case> cases;
  for (const Algorithm algorithm : kAlgorithms) {
    cases.push_back(
        {.count = kSanitized ? 70'001u : 600'001u, .algorithm = algorithm, .fill = Fill::random, .seed = 9});
  }
  expect_right(ranks, cpu_config(), cases);
}

// The stated bound: n − 1 additions in f32, each off by half a unit of at most the sum of magnitudes, and one rounding.
TEST(AllReduceAccuracy, RandomDataAreWithinTheBoundOfAnExactSum) {
  constexpr int ranks = 6;
  for (const DataType type : {DataType::bf16, DataType::f16, DataType::f32}) {
    const Case c{.count = 5000, .type = type, .algorithm = Algorithm::two_shot, .fill = Fill::random, .seed = 31};
    const Prepared prepared = prepare(c, ranks);
    std::vector<Bytes> results(ranks);
    expect_all_well(run_world(ranks, cpu_config(), [&](Communicator& communicator, int rank) {
      Tensors tensors(c, prepared.inputs[static_cast<std::size_t>(rank)]);
      all_reduce(communicator, arguments(c, tensors.input.content().data(), tensors.output.content().data()));
      const auto got = tensors.output.content();
      results[static_cast<std::size_t>(rank)].assign(got.begin(), got.end());
    }));
    const Format f = format_of(type);
    for (std::size_t i = 0; i < c.count; ++i) {
      double exact = 0, magnitudes = 0;
      for (const Bytes& input : prepared.inputs) {
        exact += value_of(f, get(input, type, i));  // in double, exact here
        magnitudes += std::fabs(value_of(f, get(input, type, i)));
      }
      const double accumulation = (ranks - 1) * 0x1p-24 * magnitudes;
      const double rounding = std::ldexp(1.0, -f.fraction_bits - 1) * (std::fabs(exact) + accumulation);
      const double got = value_of(f, get(results[0], type, i));
      ASSERT_LE(std::fabs(got - exact), accumulation + rounding) << name(type) << " [" << i << "]";
    }
    for (const Bytes& result : results) EXPECT_EQ(result, results[0]);
  }
}

}  // namespace
}  // namespace weft::test
