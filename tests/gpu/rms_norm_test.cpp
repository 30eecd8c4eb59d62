// All-reduces with residual and norm on GPU ranks: the CPU tests' checks for kernels, with the same reference, bit for
// bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "gpu/support/gpu_norm.hpp"
#include "gpu/support/graph.hpp"
#include "support/ranks.hpp"

namespace weft::test {
namespace {

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
        for (const bool gamma_f32 : {false, true}) {
          norms.push_back({.tokens = tokens,
                           .hidden = hidden,
                           .gamma_f32 = gamma_f32,
                           .fp8 = true,
                           .scaling = tokens == 1 ? Fp8Scaling::per_token : Fp8Scaling::per_128_columns,
                           .algorithm = algorithm,
                           .seed = 5});
        }
      }
      norms.push_back({.tokens = tokens, .hidden = hidden - 8, .type = DataType::f16, .seed = 6});
    }
  }
  expect_right(world, norms);
}

// Above 256 KiB two ranks do not send to themselves: they load their own input again, which other blocks replace.
TEST_P(GpuRmsNorm, LargeOneShotsInPlace) {
  std::vector<Norm> norms;
  for (const std::size_t hidden : {4096u, 7168u}) {
    for (const int blocks : {0, 5}) {
      norms.push_back({.tokens = 70,
                       .hidden = hidden,
                       .residual_in_place = true,
                       .output_in_place = true,
                       .algorithm = Algorithm::one_shot,
                       .seed = 8,
                       .launch = {.blocks = blocks}});
    }
  }
  expect_right(lasting_gpu_world(GetParam()), norms);
}

// Rows with exactly one thread per pack in the largest blocks, and one row that is longer: 32 warps, each with its sum.
TEST_P(GpuRmsNorm, LargestBlocks) {
  const int ranks = GetParam();
  GpuWorld& world = lasting_gpu_world(ranks);
  const int threads = ranks == 2 || ranks == 4 ? 1024 : 512;
  std::vector<Norm> norms;
  for (const std::size_t hidden : {4224u, 7168u, 8192u, 8320u}) {
    for (const Fp8Scaling scaling : {Fp8Scaling::fixed, Fp8Scaling::per_token, Fp8Scaling::per_128_columns}) {
      for (const Algorithm algorithm : {Algorithm::one_shot, Algorithm::two_shot}) {
        norms.push_back({.tokens = 11,
                         .hidden = hidden,
                         .fp8 = scaling != Fp8Scaling::fixed,
                         .scaling = scaling,
                         .algorithm = algorithm,
                         .seed = 7,
                         .launch = {.blocks = 6, .threads = threads}});
        // Kernels for any number of ranks: smaller blocks.
        norms.push_back(norms.back());
        norms.back().gamma_f32 = true;
        norms.back().launch.threads = 512;
      }
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

// Two graphs and eager calls take turns. Input, residual and weights change each time: with the same data, stale slots
// or captured arguments would look right.
void expect_replays_mix_with_eager_calls(GpuWorld& world, int ranks, std::size_t hidden, int turns) {
  constexpr std::size_t versions = 3;
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
    std::vector<RankNorm> norms;
    for (const Algorithm algorithm : {Algorithm::one_shot, Algorithm::two_shot, Algorithm::automatic}) {
      for (std::uint32_t version = 0; version < versions; ++version) {
        norms.push_back(prepare({.tokens = 5,
                                 .hidden = hidden,
                                 .residual_in_place = true,
                                 .output_in_place = true,
                                 .fp8 = true,
                                 .algorithm = algorithm,
                                 .seed = 7 + version,
                                 .launch = world.launch()},
                                ranks, rank));
      }
    }
    std::vector<GpuNorm> on_gpu;
    for (std::size_t i = 0; i < norms.size(); i += versions) on_gpu.emplace_back(gpu, norms[i]);
    const Graph first(gpu, [&] { on_gpu[0].call(communicator); });
    const Graph second(gpu, [&] { on_gpu[1].call(communicator); });
    std::mt19937 random(3);  // the same on every rank
    for (int turn = 0; turn < turns; ++turn) {
      const std::size_t choice = random() % on_gpu.size(), version = random() % versions;
      const RankNorm& norm = norms[choice * versions + version];
      on_gpu[choice].fill(norm);
      if (choice == 0) first.launch(gpu.stream());
      if (choice == 1) second.launch(gpu.stream());
      if (choice == 2) on_gpu[2].call(communicator);
      on_gpu[choice].check(norm);
      communicator.check();
    }
  }));
}

TEST_P(GpuRmsNorm, ReplaysMixWithEagerCalls) {
  expect_replays_mix_with_eager_calls(lasting_gpu_world(GetParam()), GetParam(), 4096, 1000);
}

TEST_P(GpuRmsNorm, ReplaysOfRowsLongerThanTheBuffers) {
  GpuWorld world = make_gpu_world(GetParam(), smallest_gpu_buffers());
  expect_replays_mix_with_eager_calls(world, GetParam(), 1096, 60);
}

TEST_P(GpuRmsNorm, GroupsSideBySideAndInTurnsWithTheWorld) {
  const int ranks = GetParam();
  GpuWorld world = make_gpu_world(ranks, gpu_config());
  std::vector<Norm> norms = mixed_norms(40, static_cast<std::uint32_t>(200 + ranks));
  for (Norm& norm : norms) norm.launch = world.launch();
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
    const int color = rank % 3 == 2 ? -1 : rank % 2;
    const Group group = communicator.split(color);
    for (std::size_t call = 0; call < norms.size(); ++call) {
      // The two groups make different calls.
      if (color >= 0) run_on_gpu_rank(group, gpu, norms[color == 0 ? call : norms.size() - 1 - call]);
      if (call % 4 == 0) run_on_gpu_rank(communicator, gpu, norms[call]);
    }
  }));
}

TEST_P(GpuRmsNorm, AThousandCallsBackToBack) {
  const int ranks = GetParam();
  GpuWorld& world = lasting_gpu_world(ranks);
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
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
    for (std::size_t i = 0; i < norms.size(); ++i) on_gpu[i].check(norms[i]);
  }));
}

class GpuRmsNormThresholds : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, GpuRmsNormThresholds, testing::Values(2, 3));

// A call follows one of another algorithm, grid or number of kernels without a wait, and finds that call's slots and
// epochs. Each size's step of the table serves it.
TEST_P(GpuRmsNormThresholds, RandomSizesOnBothSidesBackToBack) {
  const int ranks = GetParam();
  const std::vector<detail::TuningStep> steps{
      {.up_to = 2048, .algorithm = Algorithm::one_shot},  {.up_to = 4096, .algorithm = Algorithm::two_shot},
      {.up_to = 8192, .algorithm = Algorithm::one_shot},  {.up_to = 16384, .algorithm = Algorithm::pipelined},
      {.up_to = 32768, .algorithm = Algorithm::one_shot}, {.algorithm = Algorithm::two_shot}};
  Config config = gpu_config();  // buffers end between steps, so some calls have several kernels
  config.one_shot_bytes = 6 << 10;
  config.two_shot_bytes = 12 << 10;
  GpuWorld world = make_gpu_world(ranks, with_steps(config, "gpu-norm-steps", steps, ranks));
  const std::size_t batch = world.shared() ? std::size_t{kMostAhead} : std::size_t{16};
  std::mt19937 random(static_cast<unsigned>(ranks));
  std::vector<Norm> norms;
  while (norms.size() < 10 * 16) {
    const std::size_t hidden = 8 * (1 + random() % 64);
    const std::size_t rows = steps[random() % (steps.size() - 1)].up_to / (2 * hidden);
    norms.push_back({.tokens = rows - 1 + random() % 3,
                     .hidden = hidden,
                     .type = random() % 2 == 0 ? DataType::bf16 : DataType::f16,
                     .fp8 = random() % 4 == 0,
                     .seed = static_cast<std::uint32_t>(norms.size()),
                     .launch = world.launch()});
  }
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
    for (std::size_t first = 0; first < norms.size(); first += batch) {
      gpu.reset();
      std::vector<RankNorm> prepared;
      for (std::size_t i = 0; i < batch; ++i) prepared.push_back(prepare(norms[first + i], ranks, rank));
      std::vector<GpuNorm> on_gpu;
      for (const RankNorm& norm : prepared) on_gpu.emplace_back(gpu, norm);
      for (GpuNorm& norm : on_gpu) norm.call(communicator);
      gpu.synchronize();
      communicator.check();
      const std::vector<CallRecord> calls = communicator.world().recent_calls();
      for (std::size_t i = 0; i < batch; ++i) {
        on_gpu[i].check(prepared[i]);
        const std::size_t bytes = prepared[i].norm.tokens * prepared[i].norm.hidden * 2;
        const auto step = std::ranges::find_if(steps, [&](const auto& s) { return bytes <= s.up_to; });
        const auto wanted = step->algorithm == Algorithm::one_shot ? "one-shot" : "two-shot";
        const std::string& call = calls.at(calls.size() - batch + i).operation;
        ensure(call.find(wanted) != std::string::npos, fmt::format("{} is not served by {}", call, wanted));
      }
    }
  }));
}

TEST(GpuRmsNormArguments, MistakesAreRejectedByName) {
  GpuWorld& world = lasting_gpu_world(2);
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int) {
    for (const RejectedNorm& rejected : rejected_norms(gpu.device_memory(16384))) {
      expect_says(error_of([&] { all_reduce_rms_norm(communicator, rejected.args); }), rejected.part);
    }
    run_on_gpu_rank(communicator, gpu, Norm{.launch = world.launch()});
  }));
}

}  // namespace
}  // namespace weft::test
