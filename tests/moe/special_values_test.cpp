// Combine on CPU ranks with NaN, infinities, zeros of both signs, subnormals, and the wire's resting word.
#include <gtest/gtest.h>

#include "support/moe_batches.hpp"
#include "support/world.hpp"

namespace weft::test {
namespace {

// A sum of a single row returns its bits, except that every NaN becomes the same one.
TEST(MoeSpecialValues, RowsOfOneExpertComeBackAsTheyAre) {
  for (const PreparedMoe& p : results_of_all_bit_patterns()) {
    expect_all_well(run_world(2, smallest_buffers(), [&](Communicator& communicator, int number) {
      const auto rank = static_cast<std::uint32_t>(number);
      const MoeExchange exchange = MoeExchange::create(communicator, p.call.args);
      for (int call = 0; call < 3; ++call) {  // on each bank, and once more
        exchange_and_check(exchange, p, rank);
      }
    }));
  }
}

class MoeSpecialSums : public testing::TestWithParam<std::uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Ranks, MoeSpecialSums, testing::Values(1, 2, 3));

TEST_P(MoeSpecialSums, AreTheReferences) {
  const std::uint32_t ranks = GetParam();
  for (const Batch& batch : in_every_layout(sums_of_special_values(ranks), ranks)) {
    const std::vector<PreparedMoe> prepared = prepare_all(batch, ranks);
    expect_all_well(run_world(static_cast<int>(ranks), smallest_buffers(), [&](Communicator& communicator, int number) {
      const auto rank = static_cast<std::uint32_t>(number);
      const MoeExchange exchange = MoeExchange::create(communicator, batch.front().args);
      for (const PreparedMoe& p : prepared) {
        exchange_and_check(exchange, p, rank);
      }
    }));
  }
}

}  // namespace
}  // namespace weft::test
