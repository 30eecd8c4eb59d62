// If one GPU rank rejects a call, the ranks that wait for it end. And release() waits for queued calls.
#include <gtest/gtest.h>

#include <latch>
#include <thread>

#include "gpu/support/gpu_world.hpp"
#include "gpu/support/graph.hpp"
#include "gpu/support/kernels.hpp"
#include "support/cases.hpp"
#include "support/ranks.hpp"

namespace weft::test {
namespace {

using namespace std::chrono_literals;

constexpr int ranks = 3;

AllReduceArgs small_sum(const GpuWorld& world, GpuRank& gpu) {
  auto* const memory = gpu.device_memory(256);
  return {.input = memory, .output = memory, .count = 8, .stream = gpu.stream(), .launch = world.launch()};
}

AllReduceArgs wrong(AllReduceArgs args) {
  args.launch.blocks = 1;
  return args;
}

// Eager, and with the others waiting in a graph. A rank that is not told would time out.
TEST(GpuRejection, EndsThoseThatWaitForTheCallAndSaysWhy) {
  constexpr int odd = 1;
  for (const bool graphs : {false, true}) {
    GpuWorld world = make_gpu_world(ranks, gpu_config(10s));
    std::latch others_ended(ranks - 1);
    const auto endings = run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
      const AllReduceArgs args = small_sum(world, gpu);
      const Graph graph(gpu, [&] { all_reduce(communicator, args); });
      graph.launch(gpu.stream());
      if (rank == odd) {
        expect_code([&] { all_reduce(communicator, wrong(args)); }, Errc::invalid_argument, "launch.blocks: 1");
        others_ended.wait();  // otherwise this call might come in time
        all_reduce(communicator, args);
      } else {
        const CountDown arrival{others_ended};
        graphs ? graph.launch(gpu.stream()) : all_reduce(communicator, args);
        gpu.synchronize();
      }
      gpu.synchronize();
      communicator.check();
    });
    for (int rank = 0; rank < ranks; ++rank) {
      const std::string where = (graphs ? "graphs, rank " : "eager, rank ") + std::to_string(rank);
      expect_fault(endings[index(rank)], {Errc::mismatch, Errc::peer_failed}, where);
      if (!endings[index(rank)].error) continue;
      const Fault& fault = endings[index(rank)].error->fault();
      EXPECT_EQ(fault.peer, odd) << where << ": " << endings[index(rank)].what;
      if (fault.code == Errc::mismatch) expect_says(fault.theirs, "a call that it rejected (launch.blocks: 1 ");
    }
  }
}

TEST(GpuRejection, ByAllRanksLeavesNoTrace) {
  GpuWorld world = make_gpu_world(ranks, gpu_config());
  const Prepared prepared = prepare({.count = 1000}, ranks);
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
    for (int times = 0; times < 4; ++times) {
      for (int again = 0; again < times; ++again) {
        expect_code([&] { all_reduce(communicator, wrong(small_sum(world, gpu))); }, Errc::invalid_argument, "launch");
      }
      run_on_gpu_rank(communicator, gpu, prepared, rank);
    }
    communicator.check();
  }));
}

// One rank's stream is busy when all ranks reject a call on it, so its rejection is told late. Its next call, on
// another stream, must count the rejection all the same: peers have told theirs long ago.
TEST(GpuRejection, ByAllRanksLeavesNoTraceOnAnotherStream) {
  GpuWorld world = make_gpu_world(2, gpu_config());
  const Prepared prepared = prepare({.count = 1000}, 2);
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
    AllReduceArgs args = wrong(small_sum(world, gpu));
    args.stream = gpu.other_stream();
    gpu.meet();
    if (rank == 1) delay(200ms, gpu.other_stream());
    expect_code([&] { all_reduce(communicator, args); }, Errc::invalid_argument, "launch");
    if (rank == 1) std::this_thread::sleep_for(50ms);  // the peer has told its rejection
    run_on_gpu_rank(communicator, gpu, prepared, rank);
    communicator.check();
  }));
}

// Rank 0's calls wait on the GPU for the others' calls, which come when rank 0 is already in release().
TEST(GpuRelease, WaitsForCallsThatAreQueued) {
  GpuWorld world = make_gpu_world(2, gpu_config());
  const Prepared prepared = prepare({.count = 1000}, 2);
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
    gpu.reset();
    GpuTensors tensors(gpu, prepared, rank);
    AllReduceArgs args = tensors.arguments(gpu.stream());
    args.launch = world.launch();
    if (rank == 1) std::this_thread::sleep_for(200ms);
    for (int call = 0; call < 20; ++call) all_reduce(communicator, args);
    tensors.download(gpu.stream());
    communicator.release();
    gpu.synchronize();
    EXPECT_FALSE(communicator.status().has_value());
    tensors.check();
    communicator.acquire();
    run_on_gpu_rank(communicator, gpu, prepared, rank);
  }));
}

}  // namespace
}  // namespace weft::test
