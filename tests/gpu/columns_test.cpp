// Calls that put columns together, on GPU ranks: the CPU tests' cases, large ones, symmetric memory, graphs
// for every batch, and many calls back to back.
#include "support/columns.hpp"

#include <gtest/gtest.h>

#include <deque>
#include <set>

#include "gpu/support/compared.hpp"
#include "gpu/support/gpu_columns.hpp"
#include "gpu/support/gpu_side.hpp"
#include "support/ranks.hpp"
#include "support/sanitized.hpp"
#include "support/turn_cases.hpp"
#include "weft/symmetric.hpp"

namespace weft::test {
namespace {

// Larger than lines, with room for the symmetric memory of any test.
std::vector<ColumnCase> gpu_cases(int ranks) {
  std::vector<ColumnCase> cases = column_cases(ranks);
  const std::size_t shard = 1'616, all = shard * static_cast<std::size_t>(ranks);
  cases.push_back({.rows = 256, .shard = shard, .columns = all - 24, .seed = 100});
  cases.push_back({.rows = 256, .shard = shard, .columns = all - 24, .output_f32 = true, .soft_cap = 30, .seed = 101});
  cases.push_back({.rows = 131, .shard = 1'615, .output_f32 = true, .seed = 102});
  return cases;
}
constexpr std::size_t kRoom = std::size_t{16} << 20;

class GpuColumnGathers : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, GpuColumnGathers, testing::ValuesIn(world_sizes({1, 2, 3, 4})));

TEST_P(GpuColumnGathers, ComeToTheirPlaces) {
  for (const Config& config : {gpu_config(), small_gpu_slots()}) {
    GpuWorld world = make_gpu_world(GetParam(), config);
    expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int) {
      for (const ColumnCase& c : gpu_cases(communicator.size())) run_on_gpu_rank(communicator, gpu, c);
    }));
  }
}

TEST_P(GpuColumnGathers, ComeToTheirGroups) {
  for (const Config& config : {gpu_config(), small_gpu_slots()}) {
    GpuWorld world = make_gpu_world(GetParam(), config);
    expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int) {
      std::vector<ColumnCase> cases = group_column_cases(communicator.size());
      // Chunks of many warp groups, to a busy group and to others.
      std::vector<std::int32_t> counts(static_cast<std::size_t>(communicator.size()), 40);
      counts.back() = 300;
      for (const bool wide : {false, true}) {
        cases.push_back({.rows = std::size_t{260} + 40 * counts.size(),
                         .shard = 1'616,
                         .output_f32 = wide,
                         .soft_cap = wide ? 30.0f : 0.0f,
                         .counts = counts,
                         .seed = 100});
      }
      for (const ColumnCase& c : cases) run_on_gpu_rank(communicator, gpu, c);
    }));
  }
}

TEST_P(GpuColumnGathers, ComeToSymmetricMemory) {
  GpuWorld world = make_gpu_world(GetParam(), small_gpu_slots());
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
    auto memory = SymmetricMemory::allocate(communicator, kRoom);
    for (const ColumnCase& c : gpu_cases(communicator.size())) {
      gpu.reset();
      const PreparedColumns prepared = prepare(c, communicator.size(), rank);
      GpuColumns columns(gpu, prepared, static_cast<std::byte*>(memory.data()));
      columns.call(communicator);
      columns.check(prepared);
      communicator.check();
    }
    memory.free();
  }));
}

// Two graphs and eager calls take turns, with new logits and counts each time. Capacities are each rank's own.
TEST_P(GpuColumnGathers, TwoGraphsForEveryBatch) {
  const int ranks = GetParam();
  for (GpuWorld* world : {&lasting_gpu_world(ranks), &lasting_gpu_world(ranks, small_gpu_slots)}) {
    expect_all_well(run_gpu_world(*world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
      for (const int group_ranks : std::set{1, ranks % 2 == 0 ? 2 : 1, ranks}) {
        gpu.reset();
        take_turns_with_columns(GpuSide(*world, gpu, communicator), ranks, rank, group_ranks,
                                [&](const PreparedColumns& largest) { return GpuColumns(gpu, largest); });
      }
    }));
  }
}

// Columns for all ranks and for groups, behind each other with nothing between them but their inputs, which change.
TEST_P(GpuColumnGathers, ManyCallsBackToBack) {
  const int ranks = GetParam();
  GpuWorld& world = lasting_gpu_world(ranks);
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
    gpu.reset();
    std::deque<PreparedColumns> prepared;
    std::vector<ComparedCalls> calls;
    const auto add = [&](const std::vector<ColumnCase>& cases) {
      std::vector<Stretches> contents;
      const std::size_t first = prepared.size();
      for (const ColumnCase& c : cases)
        contents.push_back(stretches_of(prepared.emplace_back(prepare(c, ranks, rank))));
      calls.emplace_back(gpu, contents,
                         [&of = prepared[first], stream = gpu.stream()](const Group& group, const auto& at) {
                           const auto* const numbers = reinterpret_cast<const std::int32_t*>(at(2));
                           make_column_call(group, of, {at(0), at(1), numbers, stream});
                         });
    };
    for (const std::size_t shard : {std::size_t{120}, std::size_t{117}}) {
      const auto one = [&](std::uint32_t seed) { return ColumnCase{.rows = 5, .shard = shard, .seed = seed}; };
      add({one(1), one(2), one(3)});
      for (const std::size_t group_ranks : std::set<std::size_t>{1, static_cast<std::size_t>(ranks)}) {
        const std::size_t groups = static_cast<std::size_t>(ranks) / group_ranks;
        std::vector<ColumnCase> batches(3, one(0));
        for (std::size_t i = 0; i < batches.size(); ++i) {
          ColumnCase& c = batches[i];
          c.rows = groups * 4;
          c.counts.assign(groups, static_cast<std::int32_t>(1 + i));
          c.counts[i % groups] = 4;
          c.group_ranks = group_ranks;
          c.padding = Padding::fixed;
          c.slot_rows = c.room = 4;
          c.seed = static_cast<std::uint32_t>(i);
        }
        add(batches);
      }
    }
    make_back_to_back(world, communicator, gpu, 100, calls);
  }));
}

}  // namespace
}  // namespace weft::test
