// Weights that are given to combine on GPU ranks: the CPU tests' calls with the same reference, bit for bit.
#include <gtest/gtest.h>

#include "gpu/support/gpu_moe.hpp"
#include "gpu/support/moe_replays.hpp"
#include "support/moe_batches.hpp"

namespace weft::test {
namespace {

class GpuMoeLateWeights : public testing::TestWithParam<std::uint32_t> {
 protected:
  // Through slots and through a ring.
  static void run(const std::vector<Batch>& batches) {
    ASSERT_FALSE(weighed_late(batches).empty());
    GpuWorld& world = lasting_gpu_world(static_cast<int>(GetParam()));
    for (const Batch& batch : weighed_late(batches)) expect_right(world, batch);
    for (const Batch& batch : on_ring(weighed_late(batches))) expect_right(world, batch);
  }
};
INSTANTIATE_TEST_SUITE_P(Ranks, GpuMoeLateWeights, testing::Values(1, 2, 3, 8));

TEST_P(GpuMoeLateWeights, EveryKindOfRouting) {
  run(in_every_layout(every_kind_of_routing(GetParam()), GetParam()));
}

TEST_P(GpuMoeLateWeights, SpecialValues) {
  run(sums_of_special_values(GetParam()));
}

TEST_P(GpuMoeLateWeights, RowsWithoutRoomAreDropped) {
  run(rows_without_room());
}

// More tokens than a block has warps.
TEST_P(GpuMoeLateWeights, ManyTokens) {
  MoeExchangeArgs args{.tokens = 40, .hidden = 512, .experts = 32, .top_k = 8};
  args.capacity = GetParam() * args.tokens * args.top_k / 4;
  run({{{.args = args, .tokens = {40, 33}, .residual = true}}});
}

TEST_P(GpuMoeLateWeights, MoreTokensThanARingHasPlaces) {
  const std::vector<Batch> batches = on_ring(weighed_late({more_tokens_than_places(GetParam())}));
  for (const Batch& batch : batches) expect_right(lasting_gpu_world(static_cast<int>(GetParam())), batch);
}

TEST_P(GpuMoeLateWeights, SendsAndWaitsOfOtherGrids) {
  const Batch batch = weighed_late(every_kind_of_routing(GetParam()))[0];
  GpuWorld& world = lasting_gpu_world(static_cast<int>(GetParam()));
  expect_right_apart(world, batch);
  expect_right_apart(world, on_ring({batch})[0]);
}

TEST_P(GpuMoeLateWeights, GraphsReplayedWithOtherWeights) {
  for (const Batch& batch : weighed_late(routings_for_two_graphs(GetParam()))) {
    replay_other_routings(lasting_gpu_world(static_cast<int>(GetParam())), batch);
  }
}

}  // namespace
}  // namespace weft::test
