// All-reduces of GPU ranks, of random sizes across every threshold of a table with many steps.
#include <gtest/gtest.h>

#include "gpu/support/gpu_world.hpp"
#include "support/thresholds.hpp"

namespace weft::test {
namespace {

class GpuThresholds : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, GpuThresholds, testing::Values(2, 3));

TEST_P(GpuThresholds, AThousandAllReducesOnBothSidesOfEach) {
  const int ranks = GetParam();
  const auto steps = random_steps(static_cast<std::uint32_t>(ranks), 40);
  GpuWorld world = make_gpu_world(ranks, with_steps(gpu_config(), "gpu-thresholds", steps, ranks));
  const std::vector<Prepared> prepared = prepare_for(world, cases_around(steps, 1000));
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
    for (const Prepared& p : prepared) {
      run_on_gpu_rank(communicator, gpu, p, rank);
      expect_served_by(communicator, algorithm_for(steps, p.call.type, p.call.count * size_of(p.call.type)));
    }
  }));
}

}  // namespace
}  // namespace weft::test
