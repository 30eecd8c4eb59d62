// Faults of GPU ranks. Late, different, overlapping and aborted calls end on every rank with an error that names the
// rank and the cause. No kernel stays on the GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <latch>
#include <optional>
#include <thread>

#include "gpu/support/gpu_world.hpp"
#include "gpu/support/graph.hpp"
#include "gpu/support/kernels.hpp"
#include "support/ranks.hpp"
#include "support/verdicts.hpp"

namespace weft::test {
namespace {

using namespace std::chrono_literals;

constexpr int ranks = 3;

struct Enqueued {
  const GpuWorld& world;
  GpuRank& gpu;

  // A call without a check of its result, always with the same memory.
  void operator()(const Group& group, const Case& c, cudaStream_t stream = nullptr) const {
    gpu.reset();
    std::byte* input = gpu.device_memory(c.count * size_of(c.type));
    AllReduceArgs args = arguments(c, input, gpu.device_memory(c.count * size_of(c.type)));
    args.stream = stream != nullptr ? stream : gpu.stream();
    args.launch = world.launch();
    all_reduce(group, args);
  }
};

// After a fault the next eager call throws it, and the GPU is idle.
void expect_stays_dead(const Enqueued& call, Communicator& communicator, const Fault& fault) {
  for (int again = 0; again < 10; ++again) {
    try {
      call(communicator, {.count = 5});
      ADD_FAILURE() << "a call after a fault was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), fault.code);
      EXPECT_EQ(error.fault().peer, fault.peer);
    }
  }
  call.gpu.synchronize();
  EXPECT_EQ(cudaStreamQuery(call.gpu.stream()), cudaSuccess);
}

class GpuFaults : public testing::TestWithParam<Algorithm> {};
INSTANTIATE_TEST_SUITE_P(Algorithms, GpuFaults, testing::ValuesIn(kAlgorithms),
                         [](const auto& param) { return test_name(param.param); });

TEST_P(GpuFaults, ALateRankIsNamedByTheOthersAndLearnsItToo) {
  constexpr int late = 1;
  GpuWorld world = make_gpu_world(ranks, gpu_config(500ms));
  std::latch others_ended(ranks - 1);
  const Case c{.count = 2000, .algorithm = GetParam(), .tag = 42};
  const auto endings = run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
    const Enqueued call{world, gpu};
    for (int i = 0; i < 5; ++i) call(communicator, c);
    gpu.synchronize();
    communicator.check();
    std::optional<CountDown> arrival;
    if (rank == late) {
      others_ended.wait();
    } else {
      arrival.emplace(others_ended);
    }
    call(communicator, c);
    call(communicator, c);  // enqueued behind the failing call: ends at once
    gpu.synchronize();
    communicator.check();
  });
  expect_late_rank_named(endings, late, 6, [&](int rank, const Error& error, const std::string& where) {
    expect_blame(rank, late, error, where);
    expect_says(error.fault().operation, "all_reduce sum bf16[2000]");
    GpuRank& gpu = *world.gpus[static_cast<std::size_t>(rank)];
    gpu.use();
    expect_stays_dead({world, gpu}, world.communicators[static_cast<std::size_t>(rank)], error.fault());
  });
}

// Every kind ends its world. If two ranks share a GPU, a world is made without NCCL's start, the slowest step here. The
// kernels that check arrivals are the same.
TEST_P(GpuFaults, EveryKindOfMismatchIsFoundByEveryRank) {
  const int sharing = std::max(ranks, gpu_count() + 1);
  const std::vector<Mismatch> kinds = every_mismatch(GetParam());
  for (std::size_t k = 0; k < kinds.size(); ++k) {
    const int odd = static_cast<int>(k) % sharing;
    Config config = gpu_config(1s);
    config.one_shot_bytes = config.two_shot_bytes = 1024;
    GpuWorld world = make_gpu_world(sharing, config);
    const auto endings = run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
      const Enqueued call{world, gpu};
      Case c{.count = 700, .algorithm = GetParam(), .tag = 8};
      call(communicator, c);
      if (rank == odd) kinds[k].change(c);
      call(communicator, c);
      gpu.synchronize();
      communicator.check();
    });
    expect_mismatch_found(endings, odd, kinds[k].name, {});
  }
}

TEST_P(GpuFaults, AbortEndsKernelsThatWait) {
  for (int from = 0; from < ranks; from += 2) {
    GpuWorld world = make_gpu_world(ranks, gpu_config(20s));  // far longer than an abort takes
    std::latch waiting(ranks - 1);
    std::jthread other([&] {
      waiting.wait();
      std::this_thread::sleep_for(20ms);
      world.communicators[static_cast<std::size_t>(from)].abort();
    });
    const auto endings = run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
      const Enqueued call{world, gpu};
      const Case c{.count = 1000, .algorithm = GetParam()};
      call(communicator, c);
      gpu.synchronize();
      if (rank == ranks - 1) {
        other.join();
      } else {
        {
          const CountDown arrival{waiting};
          call(communicator, c);
        }
        gpu.synchronize();
        communicator.check();
      }
      call(communicator, c);
      gpu.synchronize();
      communicator.check();
    });
    for (int rank = 0; rank < ranks; ++rank) {
      const Ending& ending = endings[static_cast<std::size_t>(rank)];
      expect_fault(ending, {Errc::aborted}, "abort on " + std::to_string(from) + ": rank " + std::to_string(rank));
      if (ending.error) {
        EXPECT_EQ(ending.error->fault().peer, from);
      }
    }
  }
}

// Two streams without an order, and the peer has not come yet: the second call overlaps the first.
TEST_P(GpuFaults, OverlappingCallsOfOneGroupAreFound) {
  GpuWorld world = make_gpu_world(2, gpu_config(1s));
  std::latch ended(1);
  const auto endings = run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
    const Enqueued call{world, gpu};
    const Case c{.count = 1000, .algorithm = GetParam()};
    if (rank == 1) {
      ended.wait();
      call(communicator, c);
      gpu.synchronize();
      communicator.check();
      return;
    }
    const CountDown arrival{ended};
    call(communicator, c, gpu.stream());
    call(communicator, c, gpu.other_stream());
    gpu.synchronize();
    communicator.check();
  });
  expect_fault(endings[0], {Errc::overlap}, "the rank with two streams");
  expect_fault(endings[1], {Errc::peer_failed}, "its peer");
}

// A captured graph of a failed communicator does nothing and waits for no rank.
TEST(GpuFaultsInGraphs, ReplaysAfterAFaultEndAtOnce) {
  GpuWorld world = make_gpu_world(2, gpu_config(500ms));
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
    const Enqueued call{world, gpu};
    const Graph graph(gpu, [&] { call(communicator, {.count = 1000}); });
    graph.launch(gpu.stream());
    gpu.synchronize();
    communicator.check();
    // Only rank 0 replays. Its first replay times out; if a thousand more did, too, they would take minutes.
    if (rank == 0) {
      for (int replay = 0; replay < 1000; ++replay) graph.launch(gpu.stream());
      gpu.synchronize();
      ASSERT_TRUE(communicator.status().has_value());
      EXPECT_EQ(communicator.status()->code, Errc::timeout);
      EXPECT_EQ(communicator.status()->peer, 1);
    }
  }));
}

}  // namespace
}  // namespace weft::test
