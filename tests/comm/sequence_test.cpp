// Many calls one after the other: the state that a call leaves behind must suit any next call.
#include <gtest/gtest.h>

#include <chrono>
#include <random>
#include <thread>

#include "support/case_lists.hpp"
#include "support/first_epoch.hpp"
#include "support/sanitized.hpp"
#include "support/world.hpp"

namespace weft::test {
namespace {

using namespace std::chrono_literals;

constexpr Mix kMix{.most = 3000, .few = 60};

class Sequence : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Sequence, testing::ValuesIn(world_sizes({1, 2, 3, 5, 8})));

TEST_P(Sequence, SizesGrowAndShrinkCallByCall) {
  const int ranks = GetParam();
  std::vector<Case> cases;
  for (const Algorithm algorithm : kAlgorithms) {
    for (std::size_t step = 1; step <= 40; ++step) {
      for (const std::size_t count : {step * 13, 600 - step * 13, step % 3 * 700}) {
        cases.push_back({.count = count, .algorithm = algorithm, .seed = static_cast<std::uint32_t>(cases.size())});
      }
    }
  }
  const auto prepared = prepare_all(cases, ranks);
  expect_all_well(run_world(ranks, small_pieces(), [&](Communicator& communicator, int rank) {
    for (const Prepared& p : prepared) run_on_cpu_rank(communicator, p, rank);
  }));
}

TEST_P(Sequence, EverythingMixed) {
  const int ranks = GetParam();
  const auto prepared =
      prepare_all(mixed_cases(repeated(1000), 1234u + static_cast<std::uint32_t>(ranks), kMix), ranks);
  expect_all_well(run_world(ranks, small_pieces(), [&](Communicator& communicator, int rank) {
    for (const Prepared& p : prepared) run_on_cpu_rank(communicator, p, rank);
  }));
}

// First epochs: 0, and just before the sign bit changes and the word wraps.
TEST_P(Sequence, FirstEpochs) {
  const int ranks = GetParam();
  const auto prepared = prepare_all(mixed_cases(24, 77, kMix), ranks);
  for (const std::uint32_t first : {0u, 1u, 2u, 0x7ffffffdu, 0xfffffffdu}) {
    Config config = small_pieces();
    const FirstEpoch epoch(first);
    config.max_groups = 1;
    expect_all_well(run_world(ranks, config, [&](Communicator& communicator, int rank) {
      const Group group = communicator.split(0);
      for (const Prepared& p : prepared) {
        run_on_cpu_rank(communicator, p, rank);
        run_on_cpu_rank(group, p, rank);
      }
    }));
  }
}

TEST(Sequences, TenThousandCallsWithRandomDelays) {
  constexpr int ranks = 4, kinds = 16;
  const auto prepared = prepare_all(mixed_cases(kinds, 99, kMix), ranks);
  expect_all_well(run_world(ranks, small_pieces(), [&](Communicator& communicator, int rank) {
    std::mt19937 random(static_cast<unsigned>(rank));
    for (int call = 0; call < repeated(10'000); ++call) {
      switch (random() % 64) {
        case 0:
          std::this_thread::sleep_for(std::chrono::microseconds(random() % 200));
          break;
        case 1:
        case 2:
        case 3:
          std::this_thread::yield();
          break;
        default:
          break;
      }
      run_on_cpu_rank(communicator, prepared[static_cast<std::size_t>(call % kinds)], rank);
    }
  }));
}

TEST(Sequences, RecentCallsAreTheLastOnesInOrder) {
  expect_all_well(run_world(2, cpu_config(), [&](Communicator& communicator, int) {
    EXPECT_TRUE(communicator.world().recent_calls().empty());
    for (std::uint32_t call = 0; call < 50; ++call) {
      all_reduce(communicator, {.count = 0, .type = DataType::f16, .tag = call});
      const auto calls = communicator.world().recent_calls();
      ASSERT_EQ(calls.size(), std::min<std::size_t>(call + 1, 32));
      for (std::size_t i = 0; i < calls.size(); ++i) {
        const std::size_t number = call + 1 - calls.size() + i;
        ASSERT_EQ(calls[i].number, number);
        ASSERT_EQ(calls[i].operation, "all_reduce sum f16[0] one-shot tag " + std::to_string(number));
      }
    }
  }));
}

}  // namespace
}  // namespace weft::test
