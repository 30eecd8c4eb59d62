// A layer with data-parallel attention on GPU ranks: the CPU tests' checks for kernels that read outputs of earlier
// kernels.
#include "support/attention.hpp"

#include <gtest/gtest.h>

#include <cstring>

#include "gpu/support/gpu_side.hpp"
#include "gpu/support/gpu_world.hpp"
#include "kernel/cuda_error.hpp"
#include "support/ranks.hpp"

namespace weft::test {
namespace {

using detail::check_cuda;

class GpuSpace final : public LayerSpace {
 public:
  GpuSpace(const GpuWorld& world, GpuRank& gpu)
      : gpu_(gpu), launch_(world.launch()), pinned_(gpu.host_memory(kPinnedBytes)) {}

  std::byte* take(std::size_t bytes) override { return gpu_.device_memory(bytes); }
  void write(std::byte* to, const void* from, std::size_t bytes) override {
    ensure(bytes <= kPinnedBytes, "the memory for copies is too small");
    std::memcpy(pinned_, from, bytes);
    check_cuda(cudaMemcpyAsync(to, pinned_, bytes, cudaMemcpyHostToDevice, gpu_.stream()), "upload");
    gpu_.synchronize();
  }
  void read(void* to, const std::byte* from, std::size_t bytes) override {
    ensure(bytes <= kPinnedBytes, "the memory for copies is too small");
    check_cuda(cudaMemcpyAsync(pinned_, from, bytes, cudaMemcpyDeviceToHost, gpu_.stream()), "download");
    gpu_.synchronize();
    std::memcpy(to, pinned_, bytes);
  }
  Stream stream() const override { return gpu_.stream(); }
  Launch launch() const override { return launch_; }

 private:
  static constexpr std::size_t kPinnedBytes = std::size_t{1} << 20;
  GpuRank& gpu_;
  Launch launch_;
  std::byte* pinned_;
};

// The CPU tests' layouts that lead to different kernels: groups of one rank, of all ranks, and between.
class GpuAttention : public testing::TestWithParam<ParallelLayout> {};
INSTANTIATE_TEST_SUITE_P(Layouts, GpuAttention,
                         testing::Values(ParallelLayout{.tp = 1}, ParallelLayout{.tp = 4, .dp = 1},
                                         ParallelLayout{.tp = 4, .dp = 2}, ParallelLayout{.tp = 4, .dp = 4},
                                         ParallelLayout{.tp = 6, .dp = 2}),
                         [](const auto& info) { return test_name(info.param); });

// One graph of each step serves every batch, with eager calls between. The host does not wait between the kernels of a
// step: each kernel reads the counts of the one before.
TEST_P(GpuAttention, ALayerFromPartialSumsToEachGroupsTokens) {
  const ParallelLayout layout = GetParam();
  const auto batches = attention_batches(layout.dp);
  for (const bool chunks : {false, true}) {
    if (chunks && layout.tp != 4) continue;
    Config config = gpu_config();
    if (chunks) config.two_shot_bytes = config.group_two_shot_bytes = 256;
    GpuWorld world = make_gpu_world(layout.tp, config);
    expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int) {
      const LayerGroups groups(communicator, layout);
      for (const Layer& layer : attention_layers(layout)) {
        gpu.reset();
        GpuSpace space(world, gpu);
        LayerRank mine(layer, groups, space);
        layer_for_every_batch(GpuSide(world, gpu, communicator), mine, batches, [&](std::size_t) {
          if (world.shared()) gpu.synchronize();
        });
      }
    }));
  }
}

}  // namespace
}  // namespace weft::test
