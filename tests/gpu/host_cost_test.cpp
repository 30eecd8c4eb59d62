// A call of a GPU rank takes no memory by operator new on the host.
#include <gtest/gtest.h>

#include "cli/host_cost.hpp"
#include "gpu/support/gpu_world.hpp"
#include "kernel/cuda_error.hpp"

namespace weft::test {
namespace {

TEST(GpuHostCost, ACallTakesNoMemory) {
  GpuWorld world = make_gpu_world(1, gpu_config());
  expect_all_well(run_gpu_world(world, [](Communicator& communicator, GpuRank& gpu, int) {
    const auto device = cli::open_cuda_rank(gpu.device());
    const cli::EveryOperation operations(communicator, *device);
    expect_no_memory(operations.calls(), 20);
    detail::check_cuda(cudaStreamSynchronize(device->stream()), "cudaStreamSynchronize");
    communicator.check();
  }));
}

}  // namespace
}  // namespace weft::test
