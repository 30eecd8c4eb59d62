// Calls that put columns together, on GPU ranks: the CPU tests' cases, large ones, symmetric memory, and graphs.
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
        input_(gpu.device_memory(prepared.input.size())),
        numbers_(gpu.device_memory(kNumberBytes)) {
    output_ = output != nullptr ? output : gpu.device_memory(prepared.output.size());
    fill(prepared);
  }
  // Writes the memory of another call of the same shape.
  void fill(const PreparedColumns& prepared) {
    std::ranges::copy(prepared.input, host_);
    std::ranges::copy(prepared.output, host_ + prepared.input.size());
    copy(input_, host_, prepared.input.size(), cudaMemcpyHostToDevice);
    copy(output_, host_ + prepared.input.size(), prepared.output.size(), cudaMemcpyHostToDevice);
    const std::vector<std::int32_t> numbers = numbers_of(prepared.c);
    copy(numbers_, reinterpret_cast<const std::byte*>(numbers.data()), numbers.size() * sizeof(std::int32_t),
         cudaMemcpyHostToDevice);
    gpu_.synchronize();
  }
  void call(const Group& group) {
    const auto* const numbers = reinterpret_cast<const std::int32_t*>(numbers_);
    make_column_call(group, prepared_, {input_, output_, numbers, gpu_.stream()});
  }
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
  static constexpr std::size_t kNumberBytes = 256;
  std::byte *host_, *input_, *numbers_, *output_;
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

void run_on_gpu_rank(Communicator& communicator, GpuRank& gpu, const ColumnCase& c, int rank) {
  gpu.reset();
  const PreparedColumns prepared = prepare(c, communicator.size(), rank);
  GpuColumns columns(gpu, prepared);
  columns.call(communicator);
  columns.check(prepared);
  communicator.check();
}

class GpuColumnGathers : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, GpuColumnGathers, testing::ValuesIn(world_sizes({1, 2, 3, 4})));

TEST_P(GpuColumnGathers, ComeToTheirPlaces) {
  for (const Config& config : {gpu_config(), small_gpu_slots()}) {
    GpuWorld world = make_gpu_world(GetParam(), config);
    expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
      for (const ColumnCase& c : gpu_cases(communicator.size())) run_on_gpu_rank(communicator, gpu, c, rank);
    }));
  }
}

TEST_P(GpuColumnGathers, ComeToTheirGroups) {
  for (const Config& config : {gpu_config(), small_gpu_slots()}) {
    GpuWorld world = make_gpu_world(GetParam(), config);
    expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
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
      for (const ColumnCase& c : cases) run_on_gpu_rank(communicator, gpu, c, rank);
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

TEST(GpuColumnGraphs, FindNewCounts) {
  GpuWorld& world = lasting_gpu_world(2);
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
    gpu.reset();
    const auto batch = [&](std::vector<std::int32_t> counts, std::uint32_t seed) {
      return prepare({.rows = 128,
                      .shard = 1'024,
                      .counts = std::move(counts),
                      .padding = Padding::fixed,
                      .slot_rows = 64,
                      .room = 64,
                      .seed = seed},
                     2, rank);
    };
    const PreparedColumns first = batch({64, 1}, 0);
    GpuColumns columns(gpu, first);
    const Graph graph(gpu, [&] { columns.call(communicator); });
    for (const auto& counts : std::vector<std::vector<std::int32_t>>{{3, 64}, {0, 0}, {0, 17}, {64, 64}}) {
      const PreparedColumns next = batch(counts, 1 + static_cast<std::uint32_t>(counts[1]));
      columns.fill(next);
      graph.launch(gpu.stream());
      columns.check(next);
    }
    communicator.check();
  }));
}

}  // namespace
}  // namespace weft::test
