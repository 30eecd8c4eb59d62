// NCCL: its all-reduce as an algorithm, and an engine's communicator.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <stdexcept>
#include <thread>

#include "gpu/support/engine.hpp"
#include "gpu/support/gpu_world.hpp"
#include "gpu/support/nccl_sums.hpp"
#include "kernel/cuda_error.hpp"
#include "support/ranks.hpp"

namespace weft::test {
namespace {

using detail::check_cuda;

// Skips tests that one GPU cannot run, with the reason.
class GpuNccl : public testing::Test {
 protected:
  void SetUp() override {
    if (gpu_count() < 2) GTEST_SKIP() << "NCCL needs a GPU for every rank, and here is one GPU";
  }
  const int ranks_ = gpu_count();
};

TEST_F(GpuNccl, AllReduceByChoice) {
  GpuWorld& world = lasting_gpu_world(ranks_);
  std::vector<Case> cases;
  for (const DataType type : kTypes) {
    for (const ReduceOp op : kOps) {
      // Sums of small integers are exact in any order, and so in NCCL's.
      if (!nccl_agrees(type, op, ranks_)) continue;
      cases.push_back({.count = 10'001, .type = type, .op = op, .algorithm = Algorithm::nccl});
      cases.push_back({.count = 10'001, .type = type, .op = op, .in_place = true});
    }
  }
  const auto prepared = prepare_for(world, cases);
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
    for (const Prepared& p : prepared) run_on_gpu_rank(communicator, gpu, p, rank);
  }));
}

TEST_F(GpuNccl, FromAnEnginesCommunicator) {
  const std::vector<ncclComm_t> engine = engine_communicators(ranks_);
  std::vector<std::unique_ptr<GpuRank>> gpus;
  for (int rank = 0; rank < ranks_; ++rank) gpus.push_back(std::make_unique<GpuRank>(rank));
  const auto prepared = prepare_all({{.count = 5000, .algorithm = Algorithm::one_shot, .fill = Fill::random},
                                     {.count = 5000, .algorithm = Algorithm::two_shot, .fill = Fill::random},
                                     {.count = 5000, .algorithm = Algorithm::nccl}},
                                    ranks_);
  expect_no_errors(run_ranks(ranks_, [&](int rank) {
    GpuRank& gpu = *gpus[static_cast<std::size_t>(rank)];
    gpu.use();
    Communicator communicator = Communicator::from_nccl(engine[static_cast<std::size_t>(rank)], gpu_config());
    if (communicator.rank() != rank || communicator.size() != ranks_) throw std::runtime_error("another rank");
    for (const Prepared& p : prepared) run_on_gpu_rank(communicator, gpu, p, rank);
    communicator.split(rank % 2);
  }));
  // The engine keeps its communicator, and it works on.
  expect_no_errors(run_ranks(ranks_, [&](int rank) {
    GpuRank& gpu = *gpus[static_cast<std::size_t>(rank)];
    gpu.use();
    gpu.reset();
    auto* data = gpu.device_memory(400);
    check_cuda(cudaMemsetAsync(data, 0, 400, gpu.stream()), "cudaMemsetAsync");
    if (detail::nccl().all_reduce(data, data, 100, ncclInt32, ncclSum, engine[static_cast<std::size_t>(rank)],
                                  gpu.stream()) != ncclSuccess) {
      throw std::runtime_error("ncclAllReduce");
    }
    gpu.synchronize();
  }));
  destroy(engine);
}

// Both sums against the exact one: NCCL's within the bound of any order, Weft's within that of f32 and one rounding.
TEST_F(GpuNccl, RandomSumsAreWithinTheirBounds) {
  GpuWorld& world = lasting_gpu_world(ranks_);
  for (const Algorithm algorithm : {Algorithm::nccl, Algorithm::two_shot}) {
    const Case c{.count = 20'000, .algorithm = algorithm, .fill = Fill::random, .seed = 3};
    const Prepared prepared = prepare(c, ranks_);
    const Format f = format_of(c.type);
    expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
      GpuTensors tensors(gpu, prepared, rank);
      all_reduce(communicator, tensors.arguments(gpu.stream()));
      tensors.download(gpu.stream());
      gpu.synchronize();
      const std::span<const std::byte> got = tensors.downloaded();
      for (std::size_t i = 0; i < c.count; ++i) {
        double exact = 0, magnitudes = 0;
        for (const Bytes& input : prepared.inputs) {
          exact += value_of(f, get(input, c.type, i));
          magnitudes += std::fabs(value_of(f, get(input, c.type, i)));
        }
        const double once = 0x1p-8 * std::fabs(exact) + ranks_ * 0x1p-23 * magnitudes;
        const double bound = algorithm == Algorithm::nccl ? ranks_ * 0x1p-8 * magnitudes : once;
        const double error = std::fabs(value_of(f, get(got, c.type, i)) - exact);
        if (!(error <= bound)) {
          throw std::runtime_error(fmt::format("{} [{}]: off by {}, bound {}", name(algorithm), i, error, bound));
        }
      }
    }));
  }
}

// A rank drives another GPU than its thread's current one. Creation, calls and the end leave the current GPU and the
// environment unchanged.
TEST_F(GpuNccl, CreationLeavesDeviceAndEnvironmentAlone) {
  const auto variables = [] {
    std::vector<std::string> all;
    for (char** variable = environ; *variable != nullptr; ++variable) all.emplace_back(*variable);
    return all;
  };
  // CUDA and NCCL may set variables of their own when they start.
  const std::vector<ncclComm_t> engine = engine_communicators(ranks_);
  destroy(engine);
  const std::vector<std::string> before = variables();
  const UniqueId id = UniqueId::create();
  expect_no_errors(run_ranks(ranks_, [&](int rank) {
    const int current = (rank + 1) % ranks_;
    GpuRank gpu(rank);
    gpu.use();
    std::byte* data = gpu.device_memory(1024);
    check_cuda(cudaSetDevice(current), "cudaSetDevice");
    const auto expect_current = [&](const char* after) {
      int device = -1;
      check_cuda(cudaGetDevice(&device), "cudaGetDevice");
      EXPECT_EQ(device, current) << after;
      EXPECT_EQ(cudaGetLastError(), cudaSuccess) << after;
    };
    Config config = gpu_config();
    config.cuda_device = rank;
    {
      Communicator communicator = Communicator::from_id(id, rank, ranks_, config);
      expect_current("creation");
      const Group group = communicator.split(0);
      expect_current("split");
      communicator.release();
      communicator.acquire();
      expect_current("acquire");
      for (const Algorithm algorithm : {Algorithm::automatic, Algorithm::nccl}) {
        all_reduce(group, {.input = data, .output = data, .count = 64, .algorithm = algorithm, .stream = gpu.stream()});
        expect_current("all_reduce");
        gpu.synchronize();
        communicator.check();
        expect_current("check");
      }
    }
    expect_current("destruction");
  }));
  EXPECT_EQ(variables(), before);
}

// An error that ends the communicator's block destroys it while a call is on the GPU.
TEST_F(GpuNccl, DestructionWaitsForCallsOnTheGpu) {
  constexpr std::size_t kCount = 64;
  const UniqueId id = UniqueId::create();
  expect_no_errors(run_ranks(ranks_, [&](int rank) {
    GpuRank gpu(rank);
    gpu.use();
    auto* const host = reinterpret_cast<float*>(gpu.host_memory(kCount * sizeof(float)));
    std::fill_n(host, kCount, 1.0f);
    std::byte* const data = gpu.device_memory(kCount * sizeof(float));
    const auto copy = [&](void* to, const void* from) {
      check_cuda(cudaMemcpyAsync(to, from, kCount * sizeof(float), cudaMemcpyDefault, gpu.stream()), "cudaMemcpyAsync");
    };
    copy(data, host);
    {
      Communicator communicator = Communicator::from_id(id, rank, ranks_, gpu_config());
      if (rank == ranks_ - 1) std::this_thread::sleep_for(std::chrono::milliseconds(500));
      all_reduce(communicator, {.input = data,
                                .output = data,
                                .count = kCount,
                                .type = DataType::f32,
                                .algorithm = Algorithm::one_shot,
                                .stream = gpu.stream()});
    }
    copy(host, data);
    gpu.synchronize();
    for (std::size_t i = 0; i < kCount; ++i) {
      if (host[i] != static_cast<float>(ranks_)) throw std::runtime_error(fmt::format("element {}: {}", i, host[i]));
    }
  }));
}

// ------------------------------------------------------------------------------------------------------------
// engines' communicators that do not serve

TEST_F(GpuNccl, FromNoCommunicator) {
  expect_says(error_of([] { Communicator::from_nccl(nullptr); }), "nccl: null");
}

// If one rank cannot, all ranks give its reason.
TEST_F(GpuNccl, FromNcclWithACpuConfigOnOneRank) {
  const std::vector<ncclComm_t> engine = engine_communicators(ranks_);
  const int odd = ranks_ - 1;
  const auto errors = run_ranks(ranks_, [&](int rank) {
    check_cuda(cudaSetDevice(rank), "cudaSetDevice");
    Config config = gpu_config();
    if (rank == odd) config.device = Device::cpu;
    Communicator::from_nccl(engine[static_cast<std::size_t>(rank)], config);
  });
  expect_all_say(errors, "Config::device: cpu");
  expect_says(errors.front(), fmt::format("failed on rank {}", odd));
  destroy(engine);
}

}  // namespace
}  // namespace weft::test
