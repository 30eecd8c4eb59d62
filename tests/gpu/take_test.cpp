// Rows taken out of all slots on GPU ranks: the CPU tests' checks for a kernel.
#include "support/take.hpp"

#include <gtest/gtest.h>

#include <cstring>

#include "gpu/support/gpu_world.hpp"
#include "gpu/support/graph.hpp"

namespace weft::test {
namespace {

class GpuTake {
 public:
  GpuTake(GpuRank& gpu, const PreparedTake& take) : gpu_(gpu), take_(take) {
    for (std::size_t i = 0; i < device_.size(); ++i) {
      host_[i] = gpu.host_memory(bytes(i));
      device_[i] = gpu.device_memory(bytes(i));
    }
    fill(take);
  }
  // Writes the memory of another call of the same shape.
  void fill(const PreparedTake& take) {
    for (std::size_t i = 0; i < device_.size(); ++i) {
      std::memcpy(host_[i], take.memory[i].before.data(), bytes(i));
      copy(device_[i], host_[i], bytes(i), cudaMemcpyHostToDevice);
    }
    gpu_.synchronize();
  }
  void call(const Group& group) { issue(group, take_, device_, gpu_.stream()); }
  // Waits, and throws if anything is wrong.
  void check(const PreparedTake& take) {
    for (std::size_t i = 0; i < device_.size(); ++i) copy(host_[i], device_[i], bytes(i), cudaMemcpyDeviceToHost);
    gpu_.synchronize();
    for (std::size_t i = 0; i < device_.size(); ++i) expect_after(take, i, host_[i]);
  }

 private:
  std::size_t bytes(std::size_t i) const { return take_.memory[i].before.size(); }
  void copy(std::byte* to, const std::byte* from, std::size_t bytes, cudaMemcpyKind kind) {
    detail::check_cuda(cudaMemcpyAsync(to, from, bytes, kind, gpu_.stream()), "copy of rows");
  }

  GpuRank& gpu_;
  const PreparedTake& take_;
  std::array<std::byte*, 3> host_, device_;
};

TEST(GpuTakenRows, EveryKindOfSlotShardAndRow) {
  GpuWorld& world = lasting_gpu_world(1);
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int) {
    std::vector<TakeCase> cases = take_cases();
    // More work than one grid's threads do at once.
    cases.push_back({.rows = {700, 300}, .slot = 1, .row_bytes = 14'336, .spare_rows = 9, .seed = 1});
    cases.push_back({.rows = {700, 300}, .row_bytes = 7'001, .output_gap = 3, .spare_rows = 9, .seed = 2});
    for (const TakeCase& c : cases) {
      gpu.reset();
      const PreparedTake take = prepare(c);
      GpuTake on_gpu(gpu, take);
      on_gpu.call(communicator);
      on_gpu.check(take);
      communicator.check();
    }
  }));
}

// One graph for batches with other counts. No other rank takes part.
TEST(GpuTakenRows, OneGraphForEveryBatch) {
  GpuWorld& world = lasting_gpu_world(2);
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
    gpu.reset();
    if (rank == 1) return;
    // Capacities stay: rows that one slot loses become spare rows of another slot or of the output.
    const auto batch = [](std::int32_t rows) {
      return prepare(TakeCase{.rows = {12 - rows, rows, 3},
                              .slot = 1,
                              .row_bytes = 1'024,
                              .spare_rows = static_cast<std::size_t>(12 - rows),
                              .seed = static_cast<std::uint32_t>(rows)});
    };
    const PreparedTake first = batch(12);
    GpuTake on_gpu(gpu, first);
    const Graph graph(gpu, [&] { on_gpu.call(communicator); });
    for (const std::int32_t rows : {12, 0, 5, 1, 12, 7}) {
      const PreparedTake now = batch(rows);
      on_gpu.fill(now);
      graph.launch(gpu.stream());
      on_gpu.check(now);
      communicator.check();
    }
  }));
}

TEST(GpuTakenRows, WhatDoesNotFitEndsTheCommunicator) {
  for (const TakeMisfit& misfit : take_misfits()) {
    GpuWorld world = make_gpu_world(1, gpu_config());
    const auto endings = run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int) {
      const PreparedTake take = prepare(misfit);
      GpuTake on_gpu(gpu, take);
      on_gpu.call(communicator);
      on_gpu.check(take);
      communicator.check();
    });
    expect_fault(endings[0], {Errc::capacity}, misfit.name);
    expect_reason(endings[0], Errc::capacity, misfit.reason);
  }
}

}  // namespace
}  // namespace weft::test
