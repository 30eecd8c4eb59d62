// What combine makes of NaN, infinities, zeros of both signs and subnormals, and of what the wire rests at, on CPU
// ranks.
#include <gtest/gtest.h>

#include "support/moe_batches.hpp"
#include "support/world.hpp"

namespace weft::test {
namespace {

// A row that is all there is to a sum comes back bit for bit, but that every NaN is the same one.
TEST(MoeSpecialValues, RowsOfOneExpertComeBackAsTheyAre) {
  for (const PreparedMoe& p : results_of_all_bit_patterns()) {
    expect_all_well(run_world(2, cpu_config(), [&](Communicator& communicator, int number) {
      const auto rank = static_cast<std::uint32_t>(number);
      const Exchange exchange = Exchange::create(communicator, p.call.args);
      for (int call = 0; call < 3; ++call) {  // and once more in each bank
        combine_and_check(exchange, p, rank, dispatch_and_check(exchange, p, rank));
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
    expect_all_well(run_world(static_cast<int>(ranks), cpu_config(), [&](Communicator& communicator, int number) {
      const auto rank = static_cast<std::uint32_t>(number);
      const Exchange exchange = Exchange::create(communicator, batch.front().args);
      for (const PreparedMoe& p : prepared) {
        combine_and_check(exchange, p, rank, dispatch_and_check(exchange, p, rank));
      }
    }));
  }
}

}  // namespace
}  // namespace weft::test
