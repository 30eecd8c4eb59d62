// Gathers and scatters of every kind, equal and ragged, one after the other on CPU ranks, in one group and in several.
#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "support/first_epoch.hpp"
#include "support/move_mixes.hpp"
#include "support/world.hpp"

namespace weft::test {
namespace {

void dawdle(std::mt19937& delays) {
  if (delays() % 32 == 0) std::this_thread::sleep_for(std::chrono::microseconds(delays() % 100));
}

TEST(GatherMixes, AThousandCallsOfEveryKindWithRandomDelays) {
  constexpr int ranks = 3;
  const auto moves = random_moves(60, ranks, 21);
  Config config = small_slots();
  const FirstEpoch epoch(0xffffff00u);  // epochs wrap on the way
  expect_all_well(run_world(ranks, config, [&](Communicator& communicator, int rank) {
    std::mt19937 delays(static_cast<unsigned>(rank)), choices(4);
    for (int call = 0; call < repeated(1000); ++call) {
      dawdle(delays);
      run_on_cpu_rank(communicator, moves[choices() % moves.size()]);
    }
  }));
}

// Every attention group makes its own calls while others make different ones, and sometimes all make one together.
TEST(GatherMixes, AttentionGroupsAtTheSameTime) {
  constexpr int ranks = 6, group_ranks = 2;
  const auto together = random_moves(20, ranks, 5);
  expect_all_well(run_world(ranks, small_slots(), [&](Communicator& communicator, int rank) {
    const int group = rank / group_ranks;
    const Group attention = communicator.split(group);
    const auto apart = random_moves(40, group_ranks, 100 + static_cast<std::uint32_t>(group));
    std::mt19937 delays(static_cast<unsigned>(rank)), choices(9);
    for (int call = 0; call < repeated(300); ++call) {
      dawdle(delays);
      const auto choice = choices();
      if (choice % 8 == 0) {
        run_on_cpu_rank(communicator, together[choice / 8 % together.size()]);
      } else {
        run_on_cpu_rank(attention, apart[choice / 8 % apart.size()]);
      }
    }
  }));
}

}  // namespace
}  // namespace weft::test
