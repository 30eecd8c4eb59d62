// Faults of all-reduces with residual and norm on GPU ranks: any of their kernels that waits ends, and names the rank
// and the cause.
#include <gtest/gtest.h>

#include <functional>
#include <iterator>
#include <latch>
#include <thread>

#include "gpu/support/gpu_norm.hpp"
#include "support/ranks.hpp"
#include "support/verdicts.hpp"

namespace weft::test {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kWholeRow = 64, kRowInPieces = 2048;  // with the smallest buffers

class GpuRmsNormFaults : public testing::TestWithParam<Algorithm> {
 protected:
  // Two ranks share a GPU, so worlds are made without NCCL's start, the slowest step here.
  const int ranks_ = gpu_count() + 1;
};
INSTANTIATE_TEST_SUITE_P(Algorithms, GpuRmsNormFaults, testing::Values(Algorithm::one_shot, Algorithm::two_shot),
                         [](const auto& param) { return test_name(param.param); });

// Any kernel of a norm that waits ends by the deadline, and so do the kernels behind it.
TEST_P(GpuRmsNormFaults, AMissingRankIsNamedByTheOthers) {
  const int missing = ranks_ - 1;
  for (const std::size_t hidden : {kWholeRow, kRowInPieces}) {
    GpuWorld world = make_gpu_world(ranks_, smallest_gpu_buffers(300ms));
    const Norm norm{.tokens = 2, .hidden = hidden, .algorithm = GetParam(), .launch = world.launch()};
    const auto endings = run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
      run_on_gpu_rank(communicator, gpu, norm);
      if (rank != missing) run_on_gpu_rank(communicator, gpu, norm);
    });
    expect_missing_rank_named(endings, missing, fmt::format("all_reduce_rms_norm bf16[2, {}]", hidden));
  }
}

// Every kernel that meets another compares calls: without rows, in pieces, with the other algorithm.
TEST_P(GpuRmsNormFaults, UnlikeCallsAreAMismatchOnEveryRank) {
  const std::function<void(Norm&)> changes[] = {
      [](Norm& n) { n.tokens = 0; }, [](Norm& n) { n.hidden = kRowInPieces; },
      [](Norm& n) { n.algorithm = n.algorithm == Algorithm::one_shot ? Algorithm::two_shot : Algorithm::one_shot; },
      [](Norm& n) { n.scaling = Fp8Scaling::fixed; }, [](Norm& n) { n.gamma_plus_one = true; }};
  for (std::size_t i = 0; i < std::size(changes); ++i) {
    const int odd = static_cast<int>(i) % ranks_;
    GpuWorld world = make_gpu_world(ranks_, smallest_gpu_buffers(1s));
    const auto endings = run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
      Norm norm{.tokens = 2, .hidden = kWholeRow, .fp8 = true, .algorithm = GetParam(), .launch = world.launch()};
      run_on_gpu_rank(communicator, gpu, norm);
      if (rank == odd) changes[i](norm);
      run_on_gpu_rank(communicator, gpu, norm);
    });
    for (int rank = 0; rank < ranks_; ++rank) {
      const Ending& ending = endings[index(rank)];
      const std::string where = fmt::format("change {} on rank {}: rank {}", i, odd, rank);
      expect_fault(ending, {Errc::mismatch, Errc::peer_failed}, where);
      if (!ending.error) continue;
      const Fault& fault = ending.error->fault();
      EXPECT_TRUE(fault.code == Errc::mismatch || fault.reported == Errc::mismatch) << where << ": " << ending.what;
      EXPECT_TRUE(fault.code != Errc::mismatch || rank == odd || fault.peer == odd) << where << ": " << ending.what;
    }
  }
}

// A waiting rank aborts, or the rank that the others wait for: no kernel waits until the deadline.
TEST_P(GpuRmsNormFaults, AbortEndsKernelsThatWait) {
  const int away = ranks_ - 1;
  for (const int from : {0, away}) {
    GpuWorld world = make_gpu_world(ranks_, smallest_gpu_buffers(20s));  // far longer than an abort takes
    const std::size_t hidden = from == away ? kWholeRow : kRowInPieces;
    const Norm norm{.tokens = 2, .hidden = hidden, .algorithm = GetParam(), .launch = world.launch()};
    std::latch waiting(ranks_);
    const auto endings = run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
      CountDown arrival{waiting};
      const RankNorm prepared = prepare(norm, ranks_, rank);
      GpuNorm on_gpu(gpu, prepared);
      if (rank == away) {
        arrival.now();
        waiting.wait();
        std::this_thread::sleep_for(20ms);
        world.communicators[index(from)].abort();
      }
      on_gpu.call(communicator);
      arrival.now();
      gpu.synchronize();
      communicator.check();
    });
    for (const Ending& ending : endings) {
      expect_fault(ending, {Errc::aborted}, describe(norm));
      EXPECT_TRUE(!ending.error || ending.error->fault().peer == from) << ending.what;
    }
  }
}

}  // namespace
}  // namespace weft::test
