// Faults of calls that NCCL serves: its kernels know no deadline and no poison, but they still end.
#include <gtest/gtest.h>

#include <latch>
#include <optional>
#include <thread>

#include "gpu/support/gpu_world.hpp"
#include "kernel/cuda_error.hpp"
#include "support/ranks.hpp"

namespace weft::test {
namespace {

using namespace std::chrono_literals;

class GpuNcclFaults : public testing::Test {
 protected:
  void SetUp() override {
    if (gpu_count() < 2) GTEST_SKIP() << "NCCL needs a GPU for every rank, and here is one GPU";
  }
  const int ranks_ = gpu_count();
};

constexpr int odd = 0;
const Case by_nccl{.count = 4000, .algorithm = Algorithm::nccl};

// Enqueues a call without a check of its result.
void call(const Group& group, GpuRank& gpu) {
  gpu.reset();
  std::byte* input = gpu.device_memory(by_nccl.count * size_of(by_nccl.type));
  AllReduceArgs args = arguments(by_nccl, input, gpu.device_memory(by_nccl.count * size_of(by_nccl.type)));
  args.stream = gpu.stream();
  all_reduce(group, args);
}

void call_and_wait(const Group& group, GpuRank& gpu) {
  call(group, gpu);
  gpu.synchronize();
  group.check();
}

TEST_F(GpuNcclFaults, AreRemembered) {
  GpuWorld& world = lasting_gpu_world(ranks_);
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int) {
    call_and_wait(communicator, gpu);
    expect_says(communicator.world().recent_calls().back().operation, "all_reduce sum bf16[4000] nccl tag 0");
  }));
}

TEST_F(GpuNcclFaults, ALateRankEndsTheOthersByTheDeadline) {
  GpuWorld world = make_gpu_world(ranks_, gpu_config(1s));
  std::latch others_ended(ranks_ - 1);
  const auto endings = run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
    std::optional<CountDown> arrival;
    if (rank != odd) arrival.emplace(others_ended);
    call_and_wait(communicator, gpu);  // connects
    if (rank == odd) {
      others_ended.wait();
    } else {
      call(communicator, gpu);
      gpu.synchronize();
      arrival->now();
    }
    call_and_wait(communicator, gpu);
    call_and_wait(communicator, gpu);  // the others' data may have sufficed for the late rank's first call
  });
  for (int rank = 0; rank < ranks_; ++rank) {
    const Ending& ending = endings[static_cast<std::size_t>(rank)];
    expect_fault(ending, {Errc::timeout}, "rank " + std::to_string(rank));
    if (!ending.error) continue;
    EXPECT_EQ(ending.error->fault().peer, -1);
    // The third call, if another rank's revocation ended the second one before this rank's watch did
    // (docs/reliability.md).
    if (rank != odd) {
      EXPECT_GE(ending.error->fault().epoch_wanted, 2u);
      EXPECT_LE(ending.error->fault().epoch_wanted, 3u);
    }
    expect_says(ending.what, "deadline 1000 ms");
    expect_says(ending.what, "last calls of this rank");
    const GpuRank& gpu = *world.gpus[static_cast<std::size_t>(rank)];
    gpu.use();
    EXPECT_EQ(cudaStreamQuery(gpu.stream()), cudaSuccess) << "rank " << rank;
  }
}

// No deadline could end the kernel instead.
TEST_F(GpuNcclFaults, AnAbortEndsAKernelThatWaits) {
  GpuWorld world = make_gpu_world(ranks_, gpu_config(0s));
  std::latch waiting(1), ended(1);
  std::jthread other([&] {
    waiting.wait();
    std::this_thread::sleep_for(50ms);
    world.communicators[odd].abort();
  });
  const auto endings = run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
    if (rank != odd) {
      call_and_wait(communicator, gpu);  // connects
      ended.wait();
      return communicator.abort();  // NCCL's threads end when all ranks' threads do
    }
    CountDown wait_begins(waiting), wait_ends(ended);
    call_and_wait(communicator, gpu);
    call(communicator, gpu);
    wait_begins.now();
    gpu.synchronize();
    wait_ends.now();
    communicator.check();
  });
  expect_fault(endings[odd], {Errc::aborted}, "the rank that gives up");
  if (endings[odd].error) {
    EXPECT_EQ(endings[odd].error->fault().peer, odd);
  }
  for (int rank = 1; rank < ranks_; ++rank) EXPECT_EQ(endings[static_cast<std::size_t>(rank)].what, "");
}

TEST_F(GpuNcclFaults, NothingIsCalledAfterAnAbort) {
  GpuWorld world = make_gpu_world(ranks_, gpu_config(10s));
  world.communicators[odd].abort();
  GpuRank& gpu = *world.gpus[odd];
  gpu.use();
  for (int again = 0; again < 3; ++again) {
    const std::string error = error_of([&] { call(world.communicators[odd], gpu); });
    expect_says(error, "aborted");
    expect_says(error, "all_reduce sum bf16[4000] nccl tag 0");
  }
}

}  // namespace
}  // namespace weft::test
