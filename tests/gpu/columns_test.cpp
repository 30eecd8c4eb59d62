// Gathers of columns on GPU ranks: the CPU tests' cases, large ones, symmetric memory, and graphs.
#include "support/columns.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "gpu/support/gpu_world.hpp"
#include "gpu/support/graph.hpp"
#include "support/sanitized.hpp"
#include "weft/symmetric.hpp"

namespace weft::test {
namespace {

class GpuColumns {
 public:
  // `output`: device memory, or null.
  GpuColumns(GpuRank& gpu, const PreparedColumns& prepared, std::byte* output = nullptr)
      : gpu_(gpu),
        prepared_(prepared),
        host_(gpu.host_memory(bytes())),
        input_(gpu.device_memory(prepared.input.size())) {
    output_ = output != nullptr ? output : gpu.device_memory(prepared.output.size());
    fill(prepared);
  }
  // Writes the memory of another call of the same shape.
  void fill(const PreparedColumns& prepared) {
    std::ranges::copy(prepared.input, host_);
    std::ranges::copy(prepared.output, host_ + prepared.input.size());
    copy(input_, host_, prepared.input.size(), cudaMemcpyHostToDevice);
    copy(output_, host_ + prepared.input.size(), prepared.output.size(), cudaMemcpyHostToDevice);
    gpu_.synchronize();
  }
  void call(const Group& group) { all_gather_columns(group, arguments_of(prepared_, input_, output_, gpu_.stream())); }
  // Waits, and throws if anything is wrong.
  void check(const PreparedColumns& prepared) {
    copy(host_, output_, prepared.output.size(), cudaMemcpyDeviceToHost);
    gpu_.synchronize();
    expect_columns(prepared, {host_, prepared.output.size()});
  }

 private:
  std::size_t bytes() const { return prepared_.input.size() + prepared_.output.size(); }
  void copy(std::byte* to, const std::byte* from, std::size_t bytes, cudaMemcpyKind kind) {
    detail::check_cuda(cudaMemcpyAsync(to, from, bytes, kind, gpu_.stream()), "copy of columns");
  }

  GpuRank& gpu_;
  const PreparedColumns& prepared_;
  std::byte *host_, *input_, *output_;
};

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
    expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
      for (const ColumnCase& c : gpu_cases(communicator.size())) {
        gpu.reset();
        const PreparedColumns prepared = prepare(c, communicator.size(), rank);
        GpuColumns columns(gpu, prepared);
        columns.call(communicator);
        columns.check(prepared);
        communicator.check();
      }
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

TEST(GpuColumnGraphs, FindNewNumbers) {
  GpuWorld& world = lasting_gpu_world(2);
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
    gpu.reset();
    const auto batch = [&](std::uint32_t seed) {
      return prepare({.rows = 64, .shard = 1'024, .output_f32 = true, .soft_cap = 30, .seed = seed}, 2, rank);
    };
    const PreparedColumns first = batch(0);
    GpuColumns columns(gpu, first);
    const Graph graph(gpu, [&] { columns.call(communicator); });
    for (std::uint32_t seed = 1; seed < 6; ++seed) {
      const PreparedColumns next = batch(seed);
      columns.fill(next);
      graph.launch(gpu.stream());
      columns.check(next);
    }
    communicator.check();
  }));
}

}  // namespace
}  // namespace weft::test
