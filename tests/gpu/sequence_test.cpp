// Many all_reduces on GPU ranks, one after the other: the state that a call leaves behind must suit any next call.
#include <gtest/gtest.h>

#include <memory>
#include <random>

#include "gpu/support/gpu_world.hpp"
#include "gpu/support/kernels.hpp"
#include "kernel/cuda_error.hpp"
#include "support/case_lists.hpp"

namespace weft::test {
namespace {

using detail::check_cuda;

class GpuSequence : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, GpuSequence, testing::Values(1, 2, 4));

// Sizes, types, algorithms and grids that change from call to call.
TEST_P(GpuSequence, EverythingMixed) {
  GpuWorld& world = lasting_gpu_world(GetParam());
  const Mix mix{.most = 60'000, .few = 600, .most_blocks = world.shared() ? 6 : 40};
  expect_right(world, mixed_cases(300, static_cast<std::uint32_t>(GetParam()), mix));
}

// An engine's communicator: sums shorter and longer than its slots, and the memory that is promised.
TEST_P(GpuSequence, SmallBuffers) {
  Config config = gpu_config(std::chrono::seconds(20));
  config.small_buffers = true;
  config.max_groups = 0;
  GpuWorld world = make_gpu_world(GetParam(), config);
  const Mix mix{.most = 1'200'000, .few = 60'000, .most_blocks = world.shared() ? 6 : 40};
  expect_right(world, mixed_cases(24, static_cast<std::uint32_t>(GetParam()), mix));
  expect_all_well(run_gpu_world(world, [](Communicator& communicator, GpuRank&, int) {
    const MemoryUse memory = communicator.memory();
    EXPECT_LE(memory.window + memory.control, std::size_t{32} << 20);
  }));
}

// Ten thousand calls, with new data every fifty. In the first fifty nothing may stand between calls, so results are
// checked after the last call of a kind. In the next fifty a kernel checks them after every call.
TEST_P(GpuSequence, TenThousandCallsWithRandomDelays) {
  GpuWorld& world = lasting_gpu_world(GetParam());
  constexpr int calls = 10'000, kept = 50;
  constexpr std::size_t kinds = 5, versions = 6;
  std::vector<Case> cases;
  for (std::uint32_t version = 0; version < versions; ++version) {
    cases.push_back({.count = 300, .type = DataType::i32, .algorithm = Algorithm::one_shot, .seed = version});
    cases.push_back({.count = 5000, .algorithm = Algorithm::two_shot, .fill = Fill::random, .seed = version});
    cases.push_back({.count = 9, .type = DataType::f32, .fill = Fill::special, .seed = version});
    cases.push_back({.count = 0});
    cases.push_back({.count = 3000, .algorithm = Algorithm::pipelined, .fill = Fill::random, .seed = version});
  }
  const auto prepared = prepare_for(world, cases);
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
    std::mt19937 random(static_cast<unsigned>(rank));
    for (int call = 0; call < calls;) {
      gpu.reset();
      std::vector<std::unique_ptr<GpuTensors>> tensors;
      const bool each = call / kept % 2 == 1;
      auto* const wrong = reinterpret_cast<unsigned long long*>(gpu.device_memory(sizeof(unsigned long long)));
      check_cuda(cudaMemsetAsync(wrong, 0, sizeof(*wrong), gpu.stream()), "cudaMemsetAsync");
      const std::size_t version = static_cast<std::size_t>(call / kept) % versions;
      for (std::size_t kind = 0; kind < kinds; ++kind) {
        tensors.push_back(std::make_unique<GpuTensors>(gpu, prepared[version * kinds + kind], rank));
      }
      for (const int end = call + kept; call < end; ++call) {
        if (random() % 50 == 0) delay(std::chrono::microseconds(random() % 100), gpu.stream());
        GpuTensors& of_kind = *tensors[static_cast<std::size_t>(call) % kinds];
        all_reduce(communicator, of_kind.arguments(gpu.stream()));
        if (each && call < end - static_cast<int>(kinds)) of_kind.compare(wrong, gpu.stream());
        if (world.shared() && call % kMostAhead == 0) gpu.synchronize();
      }
      for (auto& t : tensors) t->download(gpu.stream());
      unsigned long long differences = 0;
      check_cuda(cudaMemcpyAsync(&differences, wrong, sizeof(differences), cudaMemcpyDeviceToHost, gpu.stream()),
                 "download");
      gpu.synchronize();
      if (differences != 0) {
        throw std::runtime_error(fmt::format("{} wrong bytes in calls {} to {}", differences, call - kept, call - 1));
      }
      communicator.check();
      for (auto& t : tensors) t->check();
    }
  }));
}

}  // namespace
}  // namespace weft::test
