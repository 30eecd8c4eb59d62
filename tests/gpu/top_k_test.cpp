// Searches for the largest numbers on GPU ranks: the CPU tests' cases, vocabularies, and graphs.
#include <gtest/gtest.h>

#include <algorithm>

#include "gpu/support/gpu_world.hpp"
#include "gpu/support/graph.hpp"
#include "support/top_k.hpp"

namespace weft::test {
namespace {

class GpuTopK {
 public:
  GpuTopK(GpuRank& gpu, const PreparedTopK& prepared)
      : gpu_(gpu),
        prepared_(prepared),
        host_(gpu.host_memory(prepared.input.size() + outputs())),
        input_(gpu.device_memory(prepared.input.size())),
        output_(gpu.device_memory(outputs())) {
    fill(prepared);
  }
  void fill(const PreparedTopK& prepared) {
    std::ranges::copy(prepared.input, host_);
    copy(input_, host_, prepared.input.size(), cudaMemcpyHostToDevice);
    detail::check_cuda(cudaMemsetAsync(output_, 0xa5, outputs(), gpu_.stream()), "cudaMemset");
    gpu_.synchronize();
  }
  void call(const Group& group) {
    top_k_columns(group, arguments_of(prepared_, input_, output_, output_ + values(), gpu_.stream()));
  }
  // Waits, and throws if anything is wrong.
  void check(const PreparedTopK& prepared) {
    copy(host_, output_, outputs(), cudaMemcpyDeviceToHost);
    gpu_.synchronize();
    expect_largest(prepared, {host_, prepared.values.size()}, {host_ + values(), prepared.indices.size()});
  }

 private:
  std::size_t values() const { return (prepared_.values.size() + 15) / 16 * 16; }
  std::size_t outputs() const { return values() + prepared_.indices.size() + 16; }
  void copy(std::byte* to, const std::byte* from, std::size_t bytes, cudaMemcpyKind kind) {
    detail::check_cuda(cudaMemcpyAsync(to, from, bytes, kind, gpu_.stream()), "copy of rows");
  }

  GpuRank& gpu_;
  const PreparedTopK& prepared_;
  std::byte *host_, *input_, *output_;
};

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

TEST(GpuTopKGraphs, FindNewNumbers) {
  GpuWorld& world = lasting_gpu_world(2);
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
    gpu.reset();
    TopKCase c{.rows = 17, .shard = 5'000, .k = 20, .numbers = Numbers::rising};
    const PreparedTopK first = prepare(c, 2, rank);
    GpuTopK search(gpu, first);
    const Graph graph(gpu, [&] { search.call(communicator); });
    for (const Numbers numbers : {Numbers::ties, Numbers::any, Numbers::falling, Numbers::special, Numbers::crowded}) {
      c.numbers = numbers;
      const PreparedTopK next = prepare(c, 2, rank);
      search.fill(next);
      graph.launch(gpu.stream());
      search.check(next);
    }
    communicator.check();
  }));
}

}  // namespace
}  // namespace weft::test
