// Searches for the largest numbers on GPU ranks: the CPU tests' cases, vocabularies, graphs for every
// batch, and many calls back to back.
#include <gtest/gtest.h>

#include <deque>

#include "gpu/support/compared.hpp"
#include "gpu/support/gpu_side.hpp"
#include "gpu/support/gpu_top_k.hpp"
#include "support/ranks.hpp"
#include "support/turn_cases.hpp"

namespace weft::test {
namespace {

class GpuTopKSearches : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, GpuTopKSearches, testing::ValuesIn(world_sizes({1, 2, 3, 4, 8})));

TEST_P(GpuTopKSearches, FindTheLargest) {
  for (const bool small : {false, true}) {
    GpuWorld world = make_gpu_world(GetParam(), small ? small_gpu_slots() : gpu_config());
    expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
      std::vector<TopKCase> cases = top_k_cases(communicator.size());
      for (const std::size_t k : {1u, 10u, 50u}) cases.push_back({.rows = 300, .shard = 3'000, .k = k});
      // As many parts as a row may have; blocks of as many warps, and of an odd number.
      for (const std::size_t k : {1u, 64u}) cases.push_back({.rows = 1, .shard = 64'640, .k = k});
      for (const int threads : {480, 512}) {
        cases.push_back({.rows = 3, .shard = 20'000, .k = 64, .launch = {.threads = threads}});
      }
      constexpr std::size_t kRoom = 16;  // candidates of a row in small slots
      if (small) std::erase_if(cases, [](const TopKCase& c) { return c.k > kRoom; });
      for (const TopKCase& c : cases) {
        gpu.reset();
        const PreparedTopK prepared = prepare(c, communicator.size(), rank);
        GpuTopK search(gpu, prepared);
        search.call(communicator);
        search.check(prepared);
        communicator.check();
      }
    }));
  }
}

// Two graphs and eager calls take turns, with new numbers each time.
TEST_P(GpuTopKSearches, TwoGraphsForEveryBatch) {
  const int ranks = GetParam();
  GpuWorld& world = lasting_gpu_world(ranks);
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
    gpu.reset();
    take_turns_with_top_k(GpuSide(world, gpu, communicator), ranks, rank,
                          [&](const PreparedTopK& largest) { return GpuTopK(gpu, largest); });
  }));
}

// Behind each other with nothing between them but their inputs, which change.
TEST_P(GpuTopKSearches, ManyCallsBackToBack) {
  const int ranks = GetParam();
  GpuWorld& world = lasting_gpu_world(ranks);
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
    gpu.reset();
    std::deque<PreparedTopK> prepared;
    std::vector<ComparedCalls> calls;
    for (TopKCase c : {TopKCase{.rows = 1, .shard = 2'000, .k = 1}, TopKCase{.rows = 7, .shard = 300, .k = 20},
                       TopKCase{.rows = 40, .shard = 77, .k = 2, .type = DataType::f32}}) {
      std::vector<Stretches> contents;
      const std::size_t first = prepared.size();
      for (const Numbers numbers : {Numbers::any, Numbers::ties, Numbers::crowded}) {
        c.numbers = numbers;
        c.launch = world.launch();
        contents.push_back(stretches_of(prepared.emplace_back(prepare(c, ranks, rank))));
      }
      calls.emplace_back(gpu, contents,
                         [&of = prepared[first], stream = gpu.stream()](const Group& group, const auto& at) {
                           top_k_columns(group, arguments_of(of, at(0), at(1), at(2), stream));
                         });
    }
    make_back_to_back(world, communicator, gpu, 300, calls);
  }));
}

}  // namespace
}  // namespace weft::test
