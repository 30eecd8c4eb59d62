// All-reduces of GPU ranks, of random sizes across every threshold of a table with many steps.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>

#include "executors/cuda_error.hpp"
#include "gpu/support/gpu_world.hpp"
#include "support/thresholds.hpp"

namespace weft::test {
namespace {

class GpuThresholds : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, GpuThresholds, testing::Values(2, 3));

TEST_P(GpuThresholds, AThousandAllReducesOnBothSidesOfEach) {
  const int ranks = GetParam();
  const auto steps = random_steps(static_cast<std::uint32_t>(ranks), 40);
  cudaDeviceProp properties{};
  detail::check_cuda(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
  Config config = gpu_config();
  config.tuning_file = fmt::format("{}gpu-thresholds.{}.json", testing::TempDir(), ranks);
  std::ofstream(config.tuning_file) << detail::to_json(
      {{.processor = properties.name, .ranks = ranks, .origin = "measured", .steps = steps}});
  GpuWorld world = make_gpu_world(ranks, config);
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
