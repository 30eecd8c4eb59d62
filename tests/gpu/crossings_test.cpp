// Crossings on GPU ranks: the CPU tests' cases, long ones on grids that differ, and one graph for every way.
#include <gtest/gtest.h>

#include "gpu/support/every_batch.hpp"
#include "gpu/support/gpu_move.hpp"
#include "gpu/support/gpu_side.hpp"
#include "gpu/support/graph.hpp"
#include "support/crossing_cases.hpp"
#include "support/ranks.hpp"

namespace weft::test {
namespace {

class GpuCrossings : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, GpuCrossings, testing::Values(1, 2, 3, 4));

TEST_P(GpuCrossings, EveryShapeOfCountsInEveryKindOfSlot) {
  for (GpuWorld* world : {&lasting_gpu_world(GetParam()), &lasting_gpu_world(GetParam(), small_gpu_slots)}) {
    expect_all_well(run_gpu_world(*world, [&](Communicator& communicator, GpuRank& gpu, int) {
      for (Move move : crossings_of_every_shape(GetParam())) {
        move.launch = world->launch(move.seed);
        run_on_gpu_rank(communicator, gpu, move);
      }
    }));
  }
}

// Many times the slots, so that senders wait for credits. Ranks differ in grids and warp groups, and each chooses its
// own.
TEST_P(GpuCrossings, LongOnesOnAnyGrid) {
  GpuWorld& world = lasting_gpu_world(GetParam(), small_gpu_slots);
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
    for (Move move : long_crossings(GetParam(), 600 / GetParam())) {
      for (const Launch& launch : {Launch{.blocks = 2, .threads = 128}, Launch{.blocks = 3, .threads = 512},
                                   Launch{.blocks = 6 + rank % 3, .threads = 256}}) {
        move.launch = launch;
        ++move.seed;
        gpu.reset();
        run_on_gpu_rank(communicator, gpu, move);
      }
      move.launch = world.launch(move.seed);
      gpu.reset();
      run_on_gpu_rank(communicator, gpu, move);
    }
  }));
}

// A graph that was captured once: no rows, a few in lines, many in chunks.
TEST_P(GpuCrossings, OneGraphForEveryBatch) {
  const int ranks = GetParam();
  GpuWorld& world = lasting_gpu_world(ranks, small_gpu_slots);
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
    for (const Kind kind : {Kind::gather_sums, Kind::scatter_sums}) {
      const auto batch = [&](std::int32_t rows) {
        const Move move{.kind = kind,
                        .widths = {4096},
                        .fill = Fill::special,
                        .counts = std::vector<std::int32_t>(static_cast<std::size_t>(ranks), rows),
                        .group_ranks = ranks,
                        .seed = static_cast<std::uint32_t>(rows),
                        .launch = world.launch()};
        return prepare(move, ranks, rank);
      };
      one_graph_for_every_batch<GpuMove>(gpu, communicator, 60, batch);
    }
  }));
}

}  // namespace
}  // namespace weft::test
