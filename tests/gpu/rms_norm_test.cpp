// All-reduces with residual and norm on GPU ranks: what the CPU tests ask, asked of kernels. The reference is that of
// the CPU ranks, bit for bit.
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "gpu/support/gpu_world.hpp"
#include "gpu/support/graph.hpp"
#include "support/norms.hpp"
#include "support/ranks.hpp"

namespace weft::test {
namespace {

// A rank's memory of one call: filled, used and checked any number of times.
class GpuNorm {
 public:
  GpuNorm(GpuRank& gpu, const RankNorm& norm) : gpu_(gpu), norm_(norm) {
    for (int tensor = 0; tensor < kNormTensors; ++tensor) {
      const std::size_t bytes = norm.memory[tensor].before.size();
      copies_[tensor] = {gpu.host_memory(bytes), gpu.device_memory(bytes), bytes};
    }
    fill();
  }
  void fill() {
    for (int tensor = 0; tensor < kNormTensors; ++tensor) {
      const Copy& copy = copies_[tensor];
      if (copy.bytes == 0) continue;
      std::memcpy(copy.host, norm_.memory[tensor].before.data(), copy.bytes);
      detail::check_cuda(cudaMemcpyAsync(copy.device, copy.host, copy.bytes, cudaMemcpyHostToDevice, gpu_.stream()),
                         "upload");
    }
    gpu_.synchronize();
  }
  void call(const Group& group) {
    AllReduceRmsNormArgs args = arguments(norm_, [&](NormTensor tensor) { return copies_[tensor].device; });
    args.stream = gpu_.stream();
    all_reduce_rms_norm(group, args);
  }
  void check() {
    for (const Copy& copy : copies_) {
      if (copy.bytes == 0) continue;
      detail::check_cuda(cudaMemcpyAsync(copy.host, copy.device, copy.bytes, cudaMemcpyDeviceToHost, gpu_.stream()),
                         "download");
    }
    gpu_.synchronize();
    for (int tensor = 0; tensor < kNormTensors; ++tensor) {
      expect_after(norm_, static_cast<NormTensor>(tensor), std::span(copies_[tensor].host, copies_[tensor].bytes));
    }
  }

 private:
  struct Copy {
    std::byte* host;
    std::byte* device;
    std::size_t bytes;
  };
  GpuRank& gpu_;
  const RankNorm& norm_;
  Copy copies_[kNormTensors];
};

void run_on_gpu_rank(const Group& group, GpuRank& gpu, const Norm& norm) {
  gpu.reset();
  const RankNorm prepared = prepare(norm, group.size(), group.rank());
  GpuNorm on_gpu(gpu, prepared);
  on_gpu.call(group);
  gpu.synchronize();
  group.check();
  on_gpu.check();
}

void expect_right(GpuWorld& world, std::vector<Norm> norms) {
  for (Norm& norm : norms) {
    if (norm.launch.blocks == 0) norm.launch = world.launch();
  }
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int) {
    for (const Norm& norm : norms) run_on_gpu_rank(communicator, gpu, norm);
  }));
}

class GpuRmsNorm : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, GpuRmsNorm, testing::Values(1, 2, 3, 4, 8));

TEST_P(GpuRmsNorm, ShapesLayoutsAndOutputsOfEveryKindOnAnyGrid) {
  const int ranks = GetParam();
  GpuWorld& world = lasting_gpu_world(ranks);
  std::vector<Norm> norms = mixed_norms(300, static_cast<std::uint32_t>(ranks));
  std::mt19937 random(static_cast<unsigned>(ranks));
  for (std::size_t i = 0; i < norms.size(); i += 2) {
    const auto pick = [&](int n) { return static_cast<int>(random() % static_cast<std::uint32_t>(n)); };
    norms[i].launch = {.blocks = 2 + pick(world.shared() ? 5 : 40), .threads = 32 * (1 + pick(8))};
  }
  expect_right(world, norms);
}

TEST_P(GpuRmsNorm, RowsOfModels) {
  GpuWorld& world = lasting_gpu_world(GetParam());
  std::vector<Norm> norms;
  for (const std::size_t hidden : {4096u, 5120u, 7168u, 8192u, 16384u, 65536u}) {
    for (const std::size_t tokens : {std::size_t{1}, hidden > 10'000 ? std::size_t{3} : std::size_t{19}}) {
      for (const Algorithm algorithm : {Algorithm::one_shot, Algorithm::two_shot}) {
        norms.push_back({.tokens = tokens,
                         .hidden = hidden,
                         .fp8 = true,
                         .scaling = tokens == 1 ? Fp8Scaling::per_token : Fp8Scaling::per_128_columns,
                         .algorithm = algorithm,
                         .seed = 5});
      }
      norms.push_back({.tokens = tokens, .hidden = hidden - 8, .type = DataType::f16, .seed = 6});
    }
  }
  expect_right(world, norms);
}

// Pieces of two rows.
TEST_P(GpuRmsNorm, MoreRowsThanTheBuffersTake) {
  Config config = gpu_config();
  config.one_shot_bytes = 2 * 1600;
  config.two_shot_bytes = 2 * 1600;
  GpuWorld world = make_gpu_world(GetParam(), config);
  std::vector<Norm> norms;
  for (const Algorithm algorithm : {Algorithm::one_shot, Algorithm::two_shot}) {
    norms.push_back({.tokens = 9, .hidden = 800, .residual_in_place = true, .algorithm = algorithm, .seed = 1});
    norms.push_back({.tokens = 8, .hidden = 128, .fp8 = true, .algorithm = algorithm, .seed = 2});
  }
  expect_right(world, norms);
}

Config smallest_gpu_buffers() {
  Config config = gpu_config();
  config.one_shot_bytes = config.two_shot_bytes = 256;
  return config;
}

// Rows in pieces, and some that fit.
TEST_P(GpuRmsNorm, RowsLongerThanTheBuffers) {
  const int ranks = GetParam();
  GpuWorld world = make_gpu_world(ranks, smallest_gpu_buffers());
  std::vector<Norm> norms = mixed_norms(100, static_cast<std::uint32_t>(100 + ranks));
  for (std::size_t i = 0; i < norms.size(); i += 2) {
    norms[i].launch = {.blocks = 2 + static_cast<int>(i % 5), .threads = 32 * (1 + static_cast<int>(i % 7))};
  }
  for (const Algorithm algorithm : {Algorithm::one_shot, Algorithm::two_shot}) {
    norms.push_back({.tokens = 2, .hidden = 7168, .fp8 = true, .algorithm = algorithm, .seed = 5});
    norms.push_back({.hidden = 16384, .type = DataType::f16, .residual_in_place = true, .algorithm = algorithm});
  }
  expect_right(world, norms);
}

// Two graphs and eager calls in turns.
void expect_replays_mix_with_eager_calls(GpuWorld& world, int ranks, std::size_t hidden) {
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
    gpu.reset();
    std::vector<RankNorm> norms;
    for (const Algorithm algorithm : {Algorithm::one_shot, Algorithm::two_shot, Algorithm::automatic}) {
      norms.push_back(prepare({.tokens = 5,
                               .hidden = hidden,
                               .residual_in_place = true,
                               .output_in_place = true,
                               .fp8 = true,
                               .algorithm = algorithm,
                               .seed = 7,
                               .launch = world.launch()},
                              ranks, rank));
    }
    std::vector<GpuNorm> on_gpu;
    for (const RankNorm& norm : norms) on_gpu.emplace_back(gpu, norm);
    const Graph first(gpu, [&] { on_gpu[0].call(communicator); });
    const Graph second(gpu, [&] { on_gpu[1].call(communicator); });
    std::mt19937 random(3);  // the same on every rank
    for (int turn = 0; turn < 60; ++turn) {
      const auto choice = random() % 3;
      on_gpu[choice].fill();
      if (choice == 0) first.launch(gpu.stream());
      if (choice == 1) second.launch(gpu.stream());
      if (choice == 2) on_gpu[2].call(communicator);
      on_gpu[choice].check();
      communicator.check();
    }
  }));
}

TEST_P(GpuRmsNorm, ReplaysMixWithEagerCalls) {
  expect_replays_mix_with_eager_calls(lasting_gpu_world(GetParam()), GetParam(), 4096);
}

TEST_P(GpuRmsNorm, ReplaysOfRowsLongerThanTheBuffers) {
  GpuWorld world = make_gpu_world(GetParam(), smallest_gpu_buffers());
  expect_replays_mix_with_eager_calls(world, GetParam(), 1096);
}

TEST_P(GpuRmsNorm, AThousandCallsBackToBack) {
  const int ranks = GetParam();
  GpuWorld& world = lasting_gpu_world(ranks);
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
    gpu.reset();
    std::vector<RankNorm> norms;
    for (std::uint32_t i = 0; i < 6; ++i) {
      norms.push_back(prepare({.tokens = i < 4 ? 7u : 150u,
                               .hidden = 1024,
                               .fill = Fill::special,
                               .fp8 = i % 3 == 0,
                               .algorithm = i % 2 == 0 ? Algorithm::one_shot : Algorithm::two_shot,
                               .seed = i,
                               .launch = world.launch()},
                              ranks, rank));
    }
    std::vector<GpuNorm> on_gpu;
    for (const RankNorm& norm : norms) on_gpu.emplace_back(gpu, norm);
    std::mt19937 random(5);
    for (int call = 0; call < 1000; ++call) {
      on_gpu[random() % norms.size()].call(communicator);
      if (world.shared() && call % 4 == 3) gpu.synchronize();
    }
    gpu.synchronize();
    communicator.check();
    for (GpuNorm& norm : on_gpu) norm.check();
  }));
}

TEST(GpuRmsNormFaults, AMissingRankIsNamed) {
  constexpr int ranks = 2, missing = 1;
  for (const Algorithm algorithm : {Algorithm::one_shot, Algorithm::two_shot}) {
    GpuWorld world = make_gpu_world(ranks, gpu_config(std::chrono::milliseconds(300)));
    const Norm norm{.tokens = 4, .hidden = 256, .algorithm = algorithm, .launch = world.launch()};
    const auto endings = run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
      run_on_gpu_rank(communicator, gpu, norm);
      if (rank != missing) run_on_gpu_rank(communicator, gpu, norm);
    });
    EXPECT_EQ(endings[missing].what, "");
    expect_fault(endings[0], {Errc::timeout}, test_name(algorithm));
    EXPECT_TRUE(endings[0].error.has_value() && endings[0].error->fault().peer == missing);
    expect_says(endings[0].what, "all_reduce_rms_norm bf16[4, 256]");
  }
}

TEST(GpuRmsNormFaults, MistakesAreRejectedByName) {
  GpuWorld& world = lasting_gpu_world(2);
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int) {
    gpu.reset();
    for (const RejectedNorm& rejected : rejected_norms(gpu.device_memory(16384))) {
      expect_says(error_of([&] { all_reduce_rms_norm(communicator, rejected.args); }), rejected.part);
    }
    run_on_gpu_rank(communicator, gpu, Norm{.launch = world.launch()});
  }));
}

}  // namespace
}  // namespace weft::test
