// Streams and other kernels beside all-reduces with residual and norm.
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <vector>

#include "gpu/support/gpu_norm.hpp"
#include "gpu/support/kernels.hpp"
#include "kernel/cuda_error.hpp"
#include "support/ranks.hpp"

namespace weft::test {
namespace {

using namespace std::chrono_literals;
using detail::check_cuda;

// A rank's calls of whole rows, with both algorithms. They work in place, so a call that reads too early or twice is
// found. Each call's memory is filled anew before the next use.
class NormsInTurns {
 public:
  NormsInTurns(GpuRank& gpu, const GpuWorld& world, int rank, std::uint32_t seed) {
    for (std::uint32_t i = 0; i < 4; ++i) {
      prepared_.push_back(
          std::make_unique<RankNorm>(prepare({.tokens = i < 2 ? 3u : 40u,
                                              .hidden = 1024,
                                              .residual_in_place = true,
                                              .output_in_place = true,
                                              .fp8 = i % 3 == 0,
                                              .algorithm = i % 2 == 0 ? Algorithm::one_shot : Algorithm::two_shot,
                                              .seed = seed + i,
                                              .launch = world.launch()},
                                             world.size(), rank)));
      on_gpu_.push_back(std::make_unique<GpuNorm>(gpu, *prepared_.back()));
    }
  }
  void call(const Group& group, std::size_t number, cudaStream_t stream) {
    on_gpu_[number % on_gpu_.size()]->call(group, stream);
  }
  // Waits, and throws unless each call ran once since it was filled.
  void check_and_fill() {
    for (std::size_t i = 0; i < on_gpu_.size(); ++i) {
      on_gpu_[i]->check(*prepared_[i]);
      on_gpu_[i]->fill(*prepared_[i]);
    }
  }
  std::size_t size() const { return on_gpu_.size(); }

 private:
  std::vector<std::unique_ptr<RankNorm>> prepared_;
  std::vector<std::unique_ptr<GpuNorm>> on_gpu_;
};

class GpuRmsNormStreams : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, GpuRmsNormStreams, testing::Values(2, 4));

TEST_P(GpuRmsNormStreams, TwoOrderedByEvents) {
  GpuWorld& world = lasting_gpu_world(GetParam());
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
    NormsInTurns norms(gpu, world, rank, 1);
    cudaEvent_t done = nullptr;
    check_cuda(cudaEventCreateWithFlags(&done, cudaEventDisableTiming), "cudaEventCreate");
    for (int round = 0; round < 50; ++round) {
      for (std::size_t call = 0; call < norms.size(); ++call) {
        // Two calls of one algorithm use two streams: the second finds its banks as the other stream left them.
        const bool first = (call / 2 + static_cast<std::size_t>(round)) % 2 == 0;
        const cudaStream_t stream = first ? gpu.stream() : gpu.other_stream();
        check_cuda(cudaStreamWaitEvent(stream, done, 0), "cudaStreamWaitEvent");
        norms.call(communicator, call, stream);
        check_cuda(cudaEventRecord(done, stream), "cudaEventRecord");
      }
      gpu.synchronize();
      communicator.check();
      norms.check_and_fill();
    }
    check_cuda(cudaEventDestroy(done), "cudaEventDestroy");
  }));
}

// Two groups of the same ranks work at the same time. Their kernels share the GPU in any order on every rank, and
// neither may wait for the other's room.
TEST_P(GpuRmsNormStreams, TwoGroups) {
  const int ranks = GetParam();
  GpuWorld world = make_gpu_world(ranks, gpu_config());
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
    const Group group = communicator.split(0);
    NormsInTurns ours(gpu, world, rank, 1), theirs(gpu, world, rank, 9);
    for (int round = 0; round < 40; ++round) {
      for (std::size_t call = 0; call < ours.size(); ++call) {
        if (rank % 2 == 0) ours.call(communicator, call, gpu.stream());
        theirs.call(group, call + static_cast<std::size_t>(round), gpu.other_stream());
        if (rank % 2 == 1) ours.call(communicator, call, gpu.stream());
        if (world.shared()) gpu.synchronize();
      }
      gpu.synchronize();
      communicator.check();
      ours.check_and_fill();
      theirs.check_and_fill();
    }
  }));
}

// Other work takes most of the GPU for a few milliseconds: calls are late but right.
TEST_P(GpuRmsNormStreams, BesideAKernelThatHogsTheGpu) {
  const int ranks = GetParam();
  GpuWorld& world = lasting_gpu_world(ranks);
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
    NormsInTurns norms(gpu, world, rank, 1);
    for (int round = 0; round < 3; ++round) {
      for (std::size_t call = 0; call < norms.size(); ++call) {
        // A different rank each time, so that the others already wait.
        if (static_cast<int>(call) % ranks == rank) hog(4, 5ms, gpu.other_stream());
        norms.call(communicator, call, gpu.stream());
        gpu.synchronize();
        communicator.check();
      }
      norms.check_and_fill();
    }
  }));
}

}  // namespace
}  // namespace weft::test
