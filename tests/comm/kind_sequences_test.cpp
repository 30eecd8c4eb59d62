// A thousand calls of one kind back to back on CPU ranks, with random delays: crossings with a norm, columns, columns
// to groups, and searches for the largest. Each finds what the one before has left. (Others are in
// gather_mixes_test.cpp.)
#include <gtest/gtest.h>

#include <chrono>
#include <deque>
#include <random>
#include <thread>

#include "support/changing.hpp"
#include "support/columns.hpp"
#include "support/first_epoch.hpp"
#include "support/normed_crossings.hpp"
#include "support/sanitized.hpp"
#include "support/top_k.hpp"
#include "support/world.hpp"

namespace weft::test {
namespace {

// Ranks choose the same calls, and dawdle at times of their own.
template <class Host, class What>
void expect_thousand_calls(int ranks, const std::vector<What>& all) {
  const FirstEpoch epoch(0xffffff00u);  // epochs wrap on the way
  expect_all_well(run_world(ranks, small_slots(), [&](Communicator& communicator, int rank) {
    std::deque<Changing<What, Host>> calls;
    for (const What& what : all) calls.emplace_back(what, communicator);
    std::mt19937 delays(static_cast<unsigned>(rank)), choices(4);
    for (std::uint32_t turn = 0; turn < static_cast<std::uint32_t>(repeated(1000)); ++turn) {
      if (delays() % 32 == 0) std::this_thread::sleep_for(std::chrono::microseconds(delays() % 100));
      Changing<What, Host>& call = calls[choices() % calls.size()];
      call.fill(turn);
      call.call(communicator);
      call.check(turn);
    }
  }));
}

class KindSequences : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, KindSequences, testing::Values(2, 4));

TEST_P(KindSequences, CrossingsWithNorm) {
  expect_thousand_calls<HostNormedCrossing>(GetParam(), mixed_normed_crossings(GetParam(), 16));
}

TEST_P(KindSequences, Columns) {
  expect_thousand_calls<HostColumns>(GetParam(), few_column_cases(GetParam()));
}

TEST_P(KindSequences, TheLargestOfColumns) {
  expect_thousand_calls<HostTopK>(GetParam(), few_top_k_cases(GetParam()));
}

}  // namespace
}  // namespace weft::test
