// Launch::cluster on GPU ranks: the same bits as single blocks, and launches that are what was asked for.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "comm/state.hpp"
#include "gpu/support/captured_kernels.hpp"
#include "gpu/support/gpu_moe.hpp"
#include "gpu/support/gpu_move.hpp"
#include "support/moe_batches.hpp"
#include "support/ranks.hpp"

namespace weft::test {
namespace {

constexpr int kClusterRanks = 2;

int most_pairs(const Communicator& communicator) {
  return communicator.world().state().communicator().fabric().max_paired_blocks();
}

void run_in_halves(const GpuMoe& moe, const MoeExchange& exchange, GpuRank& gpu, const PreparedMoe& p) {
  const DispatchHandle handle = exchange.dispatch_send(moe.dispatch_args(p, gpu.stream()));
  exchange.dispatch_wait(handle, moe.dispatch_args(p, gpu.stream()));
  moe.check_dispatch(p);
  moe.combine_send(p, handle, gpu.stream());
  moe.combine_wait(p, handle, gpu.stream());
  moe.check_combine(p);
}

// Calls with every launch that `launch_of` gives from 0 on, which may differ from rank to rank. All have the bits of
// the reference.
template <class LaunchOf>
void expect_bits(const Batch& batch, int launches, bool halves, LaunchOf launch_of) {
  const std::vector<PreparedMoe> prepared = prepare_all(batch, kClusterRanks);
  expect_all_well(run_gpu_world(lasting_gpu_world(kClusterRanks), [&](Communicator& communicator, GpuRank& gpu, int) {
    MoeExchange exchange = MoeExchange::create(communicator, batch[0].args);
    for (int i = 0; i < launches; ++i) {
      const Launch launch = launch_of(communicator, i);
      SCOPED_TRACE(fmt::format("blocks {}, cluster {}", launch.blocks, launch.cluster));
      gpu.reset();
      GpuMoe moe(gpu, communicator, exchange, launch);
      for (const PreparedMoe& p : prepared) {
        moe.fill(p);
        run_on_gpu_rank(moe, gpu, p);
        if (!halves) continue;
        moe.fill(p);
        run_in_halves(moe, exchange, gpu, p);
      }
    }
    free_together(gpu, exchange);
  }));
}
// Blocks 4, 8, 16 and by size, with each kind of cluster.
constexpr int kGrids = 12;
Launch grid_of_turn(const Communicator&, int i) {
  constexpr int kBlocks[] = {4, 8, 16, 0};
  return {.blocks = kBlocks[i / 3], .cluster = i % 3};
}
// Others than the peer's.
Launch other_grid(const Communicator& communicator, int i) {
  return grid_of_turn(communicator, (i + 5 * communicator.rank()) % kGrids);
}

TEST(GpuClusters, ChangeNoBitsBySlots) {
  for (const Batch& batch : {every_kind_of_routing(kClusterRanks)[0], casts_on_the_way(kClusterRanks)[0]}) {
    expect_bits(batch, kGrids, true, grid_of_turn);
    expect_bits(batch, kGrids, true, other_grid);
  }
}

TEST(GpuClusters, ChangeNoBitsByTheRing) {
  for (const auto launch_of : {grid_of_turn, other_grid}) {
    expect_bits(on_ring({more_tokens_than_places(kClusterRanks)})[0], kGrids, false, launch_of);
    expect_bits(on_ring(every_kind_of_routing(kClusterRanks))[0], kGrids, true, launch_of);
  }
}

// Blocks wait for each other, so all pairs must be on the GPU at once.
TEST(GpuClusters, TheMostPairsThatAreAllowedFit) {
  const auto most = [](const Communicator& communicator, int) {
    EXPECT_EQ(most_pairs(communicator) % 2, 0);
    EXPECT_GE(most_pairs(communicator), 2);
    EXPECT_LE(most_pairs(communicator), communicator.world().state().communicator().fabric().max_blocks());
    return Launch{.blocks = most_pairs(communicator), .cluster = 2};
  };
  expect_bits(every_kind_of_routing(kClusterRanks)[0], 5, true, most);
  expect_bits(on_ring({more_tokens_than_places(kClusterRanks)})[0], 5, false, most);
}

TEST(GpuClusters, ChangeNoBitsOfAllReduces) {
  std::vector<Case> cases;
  for (const Algorithm algorithm :
       {Algorithm::automatic, Algorithm::one_shot, Algorithm::two_shot, Algorithm::pipelined}) {
    for (const std::size_t count : {std::size_t{1}, std::size_t{5000}, std::size_t{300'001}}) {
      for (const Launch& launch : {Launch{.cluster = 2}, Launch{.blocks = 8, .cluster = 2}, Launch{.cluster = 1}}) {
        cases.push_back({.count = count,
                         .algorithm = algorithm,
                         .fill = Fill::random,
                         .seed = static_cast<std::uint32_t>(cases.size()),
                         .launch = launch});
      }
    }
  }
  const std::vector<Prepared> prepared = prepare_all(cases, kClusterRanks);
  GpuWorld& world = lasting_gpu_world(kClusterRanks);
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
    for (const Prepared& p : prepared) run_on_gpu_rank(communicator, gpu, p, rank);
  }));
}

// `launched`: with a grid by size and single blocks. In pairs the one without a partner is left out.
void expect_pairs(const std::vector<CapturedKernel>& pairs, const std::vector<CapturedKernel>& launched, int most) {
  ASSERT_EQ(pairs.size(), launched.size());
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    EXPECT_TRUE(pairs[i].in_pairs());
    EXPECT_EQ(pairs[i].blocks, std::min(std::max(launched[i].blocks / 2 * 2, 2), most));
  }
}

// Captures a call's kernels with this launch.
using CaptureWith = std::function<std::vector<CapturedKernel>(const Launch& launch)>;

// The launch of each kernel with every kind of cluster. Without clusters it is as it was.
void expect_launches(const CaptureWith& capture, int most) {
  const std::vector<CapturedKernel> single = capture({});
  ASSERT_FALSE(single.empty());
  for (const Launch& launch : {Launch{}, Launch{.cluster = 1}}) {
    const std::vector<CapturedKernel> again = capture(launch);
    ASSERT_EQ(again.size(), single.size());
    for (std::size_t i = 0; i < again.size(); ++i) {
      EXPECT_LE(again[i].cluster, 1);
      EXPECT_EQ(again[i].blocks, single[i].blocks);
      EXPECT_EQ(again[i].threads, single[i].threads);
    }
  }
  expect_pairs(capture({.cluster = 2}), single, most);
  for (const CapturedKernel& kernel : capture({.blocks = 8, .cluster = 2})) {
    EXPECT_TRUE(kernel.in_pairs());
    EXPECT_EQ(kernel.blocks, 8);
  }
}

TEST(GpuClusters, KernelsOfExchangesStartInPairs) {
  for (const Batch& batch :
       {every_kind_of_routing(kClusterRanks)[0], on_ring(every_kind_of_routing(kClusterRanks))[0]}) {
    const std::vector<PreparedMoe> prepared = prepare_all(batch, kClusterRanks);
    const PreparedMoe& p = prepared[0];
    GpuWorld& world = lasting_gpu_world(kClusterRanks);
    expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int) {
      MoeExchange exchange = MoeExchange::create(communicator, batch[0].args);
      const auto capture = [&](bool halves) {
        return [&, halves](const Launch& launch) {
          gpu.reset();
          GpuMoe moe(gpu, communicator, exchange, launch);
          moe.fill(p);
          return captured_kernels(gpu, [&] {
            if (!halves) return moe.combine(p, moe.dispatch(p, gpu.stream()), gpu.stream());
            const DispatchHandle handle = exchange.dispatch_send(moe.dispatch_args(p, gpu.stream()));
            exchange.dispatch_wait(handle, moe.dispatch_args(p, gpu.stream()));
            moe.combine_send(p, handle, gpu.stream());
            moe.combine_wait(p, handle, gpu.stream());
          });
        };
      };
      expect_launches(capture(false), most_pairs(communicator));
      expect_launches(capture(true), most_pairs(communicator));
      free_together(gpu, exchange);
    }));
  }
}

TEST(GpuClusters, KernelsOfOtherCallsStartInPairs) {
  const std::vector<Move> moves = {{.kind = Kind::all_gather, .rows = 3, .widths = {4000}},
                                   {.kind = Kind::reduce_scatter, .rows = 2, .widths = {4000}},
                                   {.kind = Kind::all_to_all, .rows = 2, .widths = {330}},
                                   {.kind = Kind::broadcast, .rows = 4, .widths = {16}}};
  GpuWorld& world = lasting_gpu_world(kClusterRanks);
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
    for (const std::size_t count : {std::size_t{1}, std::size_t{5000}, std::size_t{300'000}}) {
      SCOPED_TRACE(fmt::format("all_reduce of {}", count));
      const Prepared p = prepare({.count = count, .algorithm = Algorithm::two_shot}, kClusterRanks);
      expect_launches(
          [&](const Launch& launch) {
            gpu.reset();
            GpuTensors tensors(gpu, p, rank);
            AllReduceArgs args = tensors.arguments(gpu.stream());
            args.launch = launch;
            return captured_kernels(gpu, [&] { all_reduce(communicator, args); });
          },
          most_pairs(communicator));
    }
    for (const Move& move : moves) {
      SCOPED_TRACE(describe(move));
      expect_launches(
          [&](const Launch& launch) {
            gpu.reset();
            Move with = move;
            with.launch = launch;
            const RankMove p = prepare(with, kClusterRanks, rank);
            GpuMove moved(gpu, p);
            return captured_kernels(gpu, [&] { moved.call(communicator); });
          },
          most_pairs(communicator));
    }
  }));
}

// Ranks that share a GPU have small launches by size, and clusters of two are rejected with their number there, too.
TEST(GpuClusters, OddNumbersAndMoreThanFitAreRejected) {
  const Prepared good = prepare({.count = 100, .seed = 3}, kClusterRanks);
  GpuWorld& world = lasting_gpu_world(kClusterRanks);
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
    const int most = most_pairs(communicator);
    std::byte* const memory = gpu.device_memory(4096);
    const auto rejected = [&](const Launch& launch, const std::string& says) {
      expect_code(
          [&] {
            all_reduce(communicator, {.input = memory,
                                      .output = memory,
                                      .count = 64,
                                      .type = DataType::f32,
                                      .stream = gpu.stream(),
                                      .launch = launch});
          },
          Errc::invalid_argument, says);
    };
    rejected({.cluster = 3}, "launch.cluster: 3 is not between 0 and 2");
    rejected({.blocks = 5, .cluster = 2}, "launch.blocks: 5 is odd, and launch.cluster is 2");
    rejected({.blocks = most + 2, .cluster = 2},
             fmt::format("launch.blocks: {} is more than the {} that fit in clusters of two", most + 2, most));
    run_on_gpu_rank(communicator, gpu, good, rank);
  }));
}

}  // namespace
}  // namespace weft::test
