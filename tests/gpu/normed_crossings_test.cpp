// Crossings with residual and norm on GPU ranks: the CPU tests' cases, long ones on grids that differ, graphs for every
// batch, and many calls back to back.
#include <gtest/gtest.h>

#include <deque>

#include "gpu/support/compared.hpp"
#include "gpu/support/every_batch.hpp"
#include "gpu/support/gpu_normed_crossing.hpp"
#include "gpu/support/gpu_side.hpp"
#include "support/ranks.hpp"
#include "support/turn_cases.hpp"
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

// Capacities are each rank's own, so ranks choose kernels that differ. Two graphs and eager calls take turns, with new
// counts each time.
TEST_P(GpuNormedCrossings, TwoGraphsForEveryBatch) {
  const int ranks = GetParam();
  for (const bool one_rank_fits : {true, false}) {
    GpuWorld world = make_gpu_world(ranks, NormedTurns{ranks, 1, one_rank_fits}.config(gpu_config()));
    expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
      for (int group_ranks = 1; group_ranks <= ranks; ++group_ranks) {
        if (ranks % group_ranks != 0) continue;
        gpu.reset();
        NormedTurns{ranks, group_ranks, one_rank_fits}.take(
            GpuSide(world, gpu, communicator), rank,
            [&](const RankNormedCrossing& largest) { return GpuNormedCrossing(gpu, largest); });
      }
    }));
  }
}

// A graph that was captured once for rows of a model: none, a few, and as many as it has room for.
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

// Calls of all kinds behind each other with nothing between them but their inputs, which change.
TEST_P(GpuNormedCrossings, ManyCallsBackToBack) {
  const int ranks = GetParam();
  GpuWorld& world = lasting_gpu_world(ranks);
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
    gpu.reset();
    std::deque<RankNormedCrossing> prepared;
    std::vector<ComparedCalls> calls;
    for (const bool gathers : {true, false}) {
      for (const int group_ranks : {1, ranks}) {
        std::vector<Stretches> contents;
        const std::size_t first = prepared.size();
        for (int content = 0; content < 3; ++content) {
          NormedCrossing c{.gathers = gathers,
                           .counts = std::vector<std::int32_t>(static_cast<std::size_t>(ranks), 2),
                           .group_ranks = group_ranks,
                           .padding = Padding::fixed,
                           .slot_rows = 2,
                           .norm = {.hidden = 2048, .seed = static_cast<std::uint32_t>(prepared.size())}};
          c.counts[static_cast<std::size_t>(content % ranks)] = content == 0 ? 2 : content - 1;
          c.norm.launch = world.launch(c.norm.seed);
          contents.push_back(stretches_of(prepared.emplace_back(prepare(c, ranks, rank))));
        }
        calls.emplace_back(gpu, contents,
                           [&of = prepared[first], stream = gpu.stream()](const Group& group, const auto& at) {
                             issue(group, of, at, stream);
                           });
      }
    }
    make_back_to_back(world, communicator, gpu, 250, calls);
  }));
}

}  // namespace
}  // namespace weft::test
