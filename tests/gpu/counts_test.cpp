// Counts that ranks exchange, on GPU ranks: the CPU tests' checks for a kernel.
#include "support/counts.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "gpu/support/dawdle.hpp"
#include "gpu/support/gpu_world.hpp"
#include "gpu/support/graph.hpp"
#include "weft/collectives.hpp"

namespace weft::test {
namespace {

// A rank's memory for calls of one shape: input and output on the GPU, the host's output in pinned memory.
class GpuCounts {
 public:
  GpuCounts(GpuRank& gpu, const CountsCase& shape, int ranks, int rank) : gpu_(gpu), shape_(shape) {
    const auto memory = counts_memory(shape, ranks, rank);
    for (std::size_t i = 0; i < memory.size(); ++i) {
      bytes_[i] = memory[i].before.size() * sizeof(std::int32_t);
      host_[i] = words(gpu.host_memory(bytes_[i]));
      device_[i] = i == 2 ? host_[i] : words(gpu.device_memory(bytes_[i]));
    }
  }
  void fill(const std::array<CountsMemory, 3>& memory) {
    for (std::size_t i = 0; i < memory.size(); ++i) std::memcpy(host_[i], memory[i].before.data(), bytes_[i]);
    copy(cudaMemcpyHostToDevice);
  }
  void call(const Group& group) { issue(group, shape_, device_, gpu_.stream()); }
  // Waits, and throws if anything is wrong.
  void check(const std::array<CountsMemory, 3>& memory) {
    copy(cudaMemcpyDeviceToHost);
    for (std::size_t i = 0; i < memory.size(); ++i) expect_after(shape_, memory[i], host_[i]);
  }

 private:
  static std::int32_t* words(std::byte* memory) { return reinterpret_cast<std::int32_t*>(memory); }
  void copy(cudaMemcpyKind kind) {
    for (std::size_t i = 0; i < 2; ++i) {
      const bool up = kind == cudaMemcpyHostToDevice;
      detail::check_cuda(
          cudaMemcpyAsync(up ? device_[i] : host_[i], up ? host_[i] : device_[i], bytes_[i], kind, gpu_.stream()),
          "copy of counts");
    }
    gpu_.synchronize();
  }

  GpuRank& gpu_;
  CountsCase shape_;
  std::array<std::size_t, 3> bytes_;
  std::array<std::int32_t*, 3> host_, device_;
};

class GpuGatheredCounts : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, GpuGatheredCounts, testing::Values(1, 4));

TEST_P(GpuGatheredCounts, EveryShapeOfGroupsSlotsAndColumns) {
  const int ranks = GetParam();
  GpuWorld& world = lasting_gpu_world(ranks);
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
    for (const CountsCase& c : counts_cases(ranks)) {
      gpu.reset();
      GpuCounts counts(gpu, c, ranks, rank);
      const auto memory = counts_memory(c, ranks, rank);
      counts.fill(memory);
      counts.call(communicator);
      counts.check(memory);
      communicator.check();
    }
  }));
}

// One graph for every batch. Eager all-reduces, which use the same slots, take turns with it.
TEST_P(GpuGatheredCounts, OneGraphForEveryBatch) {
  const int ranks = GetParam();
  GpuWorld& world = lasting_gpu_world(ranks);
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
    gpu.reset();
    const CountsCase shape{.rows = std::vector<std::int32_t>(static_cast<std::size_t>(ranks), 1),
                           .columns = 5,
                           .padding = Padding::aligned,
                           .slot_rows = 4};
    GpuCounts counts(gpu, shape, ranks, rank);
    auto* const sums = reinterpret_cast<float*>(gpu.device_memory(4096));
    detail::check_cuda(cudaMemsetAsync(sums, 0, 4096, gpu.stream()), "cudaMemsetAsync");
    const Graph graph(gpu, [&] { counts.call(communicator); });
    std::mt19937 random(3);  // the same on every rank
    for (std::uint32_t batch = 0; batch < 100; ++batch) {
      CountsCase now = shape;
      now.seed = batch;
      for (std::int32_t& rows : now.rows) rows = static_cast<std::int32_t>(random() % 50);
      const auto memory = counts_memory(now, ranks, rank);
      counts.fill(memory);
      if (batch % 3 == 0) {
        counts.call(communicator);
      } else {
        graph.launch(gpu.stream());
      }
      all_reduce(communicator, {.input = sums,
                                .output = sums,
                                .count = 1 + random() % 1000,
                                .type = DataType::f32,
                                .algorithm = Algorithm::one_shot,
                                .stream = gpu.stream(),
                                .launch = world.launch()});
      counts.check(memory);
      communicator.check();
    }
  }));
}

TEST_P(GpuGatheredCounts, AThousandCallsWithRandomDelays) {
  const int ranks = GetParam();
  GpuWorld& world = lasting_gpu_world(ranks);
  const std::vector<CountsCase> cases = counts_cases(ranks);
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
    gpu.reset();
    std::vector<GpuCounts> counts;
    std::vector<std::array<CountsMemory, 3>> memory;
    for (const CountsCase& c : cases) {
      counts.emplace_back(gpu, c, ranks, rank);
      memory.push_back(counts_memory(c, ranks, rank));
      counts.back().fill(memory.back());
    }
    std::mt19937 delays(static_cast<unsigned>(rank)), choices(4);
    for (int call = 0; call < 1000; ++call) {
      dawdle_somewhere(delays, gpu);
      counts[choices() % counts.size()].call(communicator);
      if (world.shared() && call % kMostAhead == 0) gpu.synchronize();
    }
    for (std::size_t i = 0; i < counts.size(); ++i) {
      counts[i].call(communicator);
      counts[i].check(memory[i]);
    }
    communicator.check();
  }));
}

TEST(GpuGatheredCountsFaults, NumbersThatMakeNoSlotsEndTheCallEverywhere) {
  for (const CountsMisfit& misfit : counts_misfits()) {
    GpuWorld world = make_gpu_world(4, gpu_config());
    const auto endings = run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
      auto* const memory = reinterpret_cast<std::int32_t*>(gpu.device_memory(4096));
      const std::int32_t mine = misfit.rows[static_cast<std::size_t>(rank)];
      detail::check_cuda(cudaMemcpyAsync(memory, &mine, sizeof(mine), cudaMemcpyHostToDevice, gpu.stream()), "upload");
      all_gather_counts(communicator, {.input = memory,
                                       .output = memory + 64,
                                       .group_ranks = misfit.group_ranks,
                                       .padding = misfit.padding,
                                       .slot_rows = misfit.slot_rows,
                                       .stream = gpu.stream()});
      gpu.synchronize();
      communicator.check();
    });
    expect_misfit(endings, misfit.reason, misfit.name);
  }
}

}  // namespace
}  // namespace weft::test
