// Crossings with residual and norm on GPU ranks: the CPU tests' cases, long ones on grids that differ, and one graph
// for every batch.
#include <gtest/gtest.h>

#include "gpu/support/every_batch.hpp"
#include "gpu/support/gpu_normed_crossing.hpp"
#include "gpu/support/graph.hpp"
#include "support/ranks.hpp"
#include "team/team.hpp"
#include "tuning/buffer_sizes.hpp"

namespace weft::test {
namespace {

class GpuNormedCrossings : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, GpuNormedCrossings, testing::Values(1, 2, 3, 4));

TEST_P(GpuNormedCrossings, EveryShapeOfCountsInEveryKindOfSlot) {
  for (GpuWorld* world : {&lasting_gpu_world(GetParam()), &lasting_gpu_world(GetParam(), small_gpu_slots)}) {
    expect_all_well(run_gpu_world(*world, [&](Communicator& communicator, GpuRank& gpu, int) {
      for (NormedCrossing call : normed_crossings_of_every_shape(GetParam())) {
        call.norm.launch = world->launch(call.norm.seed);
        run_on_gpu_rank(communicator, gpu, call);
      }
    }));
  }
}

// Many times the slots, and fewer rows than a block has parts. Ranks differ in grids and warp groups, and each chooses
// its own.
TEST_P(GpuNormedCrossings, LongOnesOnAnyGrid) {
  GpuWorld& world = lasting_gpu_world(GetParam(), small_gpu_slots);
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
    std::vector<NormedCrossing> calls;
    for (const std::int32_t rows : {1, 5, 300 / GetParam()}) {
      for (const NormedCrossing& call : long_normed_crossings(GetParam(), rows)) calls.push_back(call);
    }
    for (NormedCrossing& call : calls) {
      for (const Launch& launch : {Launch{.blocks = 2, .threads = 128}, Launch{.blocks = 3, .threads = 512},
                                   Launch{.blocks = 6 + rank % 3, .threads = 256}, world.launch(call.norm.seed)}) {
        call.norm.launch = launch;
        run_on_gpu_rank(communicator, gpu, call);
      }
    }
  }));
}

// A group has fewer slots than the world. So blocks of many threads work as one, and their parts norm several chunks'
// rows: more than there are parts, or fewer.
TEST_P(GpuNormedCrossings, LongOnesInParts) {
  constexpr Launch launches[] = {{.blocks = 9, .threads = 512}, {.blocks = 12, .threads = 384}};
  for (const Launch& launch : launches) {
    const auto slots = static_cast<int>(detail::default_pipeline_shape(Device::cuda, 2, false).slots);
    ASSERT_GT(launch.blocks * launch.threads / static_cast<int>(detail::kWarpGroupThreads), slots);
  }
  GpuWorld world = make_gpu_world(GetParam(), small_gpu_slots());
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int) {
    const Group group = communicator.split(0);
    for (const std::int32_t rows : {5, 300 / GetParam()}) {
      for (NormedCrossing call : long_normed_crossings(GetParam(), rows)) {
        for (const Launch& launch : launches) {
          call.norm.launch = launch;
          run_on_gpu_rank(group, gpu, call);
        }
      }
    }
  }));
}

// A graph that was captured once finds other counts at each replay: no rows, a few, and as many as it has room for.
TEST_P(GpuNormedCrossings, OneGraphForEveryBatch) {
  const int ranks = GetParam();
  GpuWorld& world = lasting_gpu_world(ranks, small_gpu_slots);
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
    for (const bool gathers : {true, false}) {
      for (const bool casts : {false, true}) {
        const auto batch = [&](std::int32_t rows) {
          NormedCrossing c{.gathers = gathers,
                           .counts = std::vector<std::int32_t>(static_cast<std::size_t>(ranks), rows),
                           .group_ranks = ranks,
                           .padding = Padding::fixed,
                           .slot_rows = 40,
                           .norm = {.hidden = 4096,
                                    .output = !casts,
                                    .fp8 = casts,
                                    .scaling = Fp8Scaling::per_128_columns,
                                    .seed = static_cast<std::uint32_t>(rows),
                                    .launch = world.launch()}};
          return prepare(c, ranks, rank);
        };
        one_graph_for_every_batch<GpuNormedCrossing>(gpu, communicator, 40, batch);
      }
    }
  }));
}

// Calls of all kinds behind each other with nothing between them, and ranks that are late by chance.
TEST_P(GpuNormedCrossings, ManyCallsBackToBack) {
  const int ranks = GetParam();
  GpuWorld& world = lasting_gpu_world(ranks);
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
    gpu.reset();
    std::vector<RankNormedCrossing> prepared;
    for (const bool gathers : {true, false}) {
      for (const int group_ranks : {1, ranks}) {
        NormedCrossing c{.gathers = gathers,
                         .counts = std::vector<std::int32_t>(static_cast<std::size_t>(ranks), 2),
                         .group_ranks = group_ranks,
                         .norm = {.hidden = 2048, .seed = static_cast<std::uint32_t>(prepared.size())}};
        c.counts.front() = 0;
        c.norm.launch = world.launch(c.norm.seed);
        prepared.push_back(prepare(c, ranks, rank));
      }
    }
    std::vector<GpuNormedCrossing> calls;
    calls.reserve(prepared.size());
    for (const RankNormedCrossing& one : prepared) calls.emplace_back(gpu, one);
    for (int turn = 0; turn < 250; ++turn) {
      if ((turn + rank) % 50 == 0) gpu.synchronize();
      for (GpuNormedCrossing& call : calls) call.call(communicator);
    }
    gpu.synchronize();
    communicator.check();
    for (std::size_t i = 0; i < calls.size(); ++i) calls[i].check(prepared[i]);
  }));
}

}  // namespace
}  // namespace weft::test
