// Large all-reduces with residual and norm between two GPU ranks, whose blocks move packs or norm rows.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "gpu/support/gpu_norm.hpp"
#include "gpu/support/graph.hpp"
#include "ops/norm/norm_plan.hpp"
#include "support/ranks.hpp"
#include "support/verdicts.hpp"

namespace weft::test {
namespace {

constexpr std::size_t kTwoShotBytes = std::size_t{5} << 20;  // a test's memory has room for a few such tensors

Config config_for_roles() {
  Config config = gpu_config();
  config.two_shot_bytes = kTwoShotBytes;
  return config;
}

// So many rows that they take more than 4 MB.
std::size_t rows_of(std::size_t hidden) {
  return (std::size_t{9} << 19) / (hidden * 2) + 3;
}

// Blocks that share a GPU with another rank's: all of them must fit at once.
Launch launch_of(const GpuWorld& world, std::size_t seed) {
  const int blocks[] = {8, 20, 33}, threads[] = {512, 256, 384};
  return {.blocks = world.shared() || seed % 2 == 1 ? blocks[seed % 3] : 0, .threads = threads[seed / 2 % 3]};
}

void expect_roles(const Norm& norm) {
  const detail::NormPlan plan = detail::plan_norm({.device = Device::cuda,
                                                   .size = 2,
                                                   .layout = detail::make_layout(2, kTwoShotBytes, kTwoShotBytes),
                                                   .type = norm.type,
                                                   .rows = norm.tokens,
                                                   .row_packs = norm.hidden / 8,
                                                   .requested = norm.algorithm,
                                                   .launch = norm.launch,
                                                   .max_blocks = 33});
  EXPECT_NE(plan.movers, 0) << describe(norm);
}

// A thread has up to four packs of a row, up to eight, or more. Small calls between the large ones find their slots.
TEST(GpuNormsInRoles, RowsOfEveryWidthOnAnyGrid) {
  GpuWorld world = make_gpu_world(2, config_for_roles());
  std::vector<Norm> norms;
  for (const std::size_t hidden : {1000u, 4096u, 7168u, 16384u}) {
    for (const Fp8Scaling scaling : {Fp8Scaling::fixed, Fp8Scaling::per_token, Fp8Scaling::per_128_columns}) {
      const std::size_t seed = norms.size() / 2;  // a small call follows each
      if (scaling == Fp8Scaling::per_128_columns && hidden % 128 != 0) continue;
      norms.push_back({.tokens = rows_of(hidden),
                       .hidden = hidden,
                       .fill = seed % 3 == 0 ? Fill::special : Fill::random,
                       .residual_in_place = seed % 2 == 0,
                       .output = scaling != Fp8Scaling::per_token,
                       .output_in_place = seed % 4 == 3 && scaling != Fp8Scaling::per_token,
                       .input_gap = seed % 3 == 1 ? 8u : 0u,
                       .fp8 = scaling != Fp8Scaling::fixed || seed % 4 == 1,
                       .scaling = scaling,
                       .algorithm = Algorithm::two_shot,
                       .seed = static_cast<std::uint32_t>(seed),
                       .launch = launch_of(world, seed)});
      expect_roles(norms.back());
      norms.push_back({.tokens = 5, .hidden = hidden, .algorithm = Algorithm::two_shot, .launch = world.launch()});
    }
  }
  // Two kernels, the second of which is short.
  norms.push_back({.tokens = kTwoShotBytes / 8192 + 9,
                   .hidden = 4096,
                   .algorithm = Algorithm::two_shot,
                   .launch = launch_of(world, 0)});
  // No kernel with roles takes γ of f32, whatever the size.
  norms.push_back({.tokens = rows_of(4096),
                   .hidden = 4096,
                   .gamma_f32 = true,
                   .algorithm = Algorithm::two_shot,
                   .launch = launch_of(world, 0)});
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int) {
    for (const Norm& norm : norms) {
      gpu.reset();
      run_on_gpu_rank(communicator, gpu, norm);
    }
  }));
}

// Roles are each rank's own matter: one has them, the other has not, or other ones.
TEST(GpuNormsInRoles, RanksWithOtherRoles) {
  GpuWorld world = make_gpu_world(2, config_for_roles());
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
    const Launch launches[] = {
        {.blocks = 8, .threads = 512}, {.blocks = 20, .threads = 96}, {.blocks = 30, .threads = 256}};
    for (int call = 0; call < 6; ++call) {
      gpu.reset();
      run_on_gpu_rank(communicator, gpu,
                      Norm{.tokens = rows_of(4096),
                           .hidden = 4096,
                           .algorithm = Algorithm::two_shot,
                           .seed = static_cast<std::uint32_t>(call),
                           .launch = launches[(call + rank * (1 + call / 3)) % 3]});
    }
  }));
}

// A graph's replays, whose data change, between small calls and without a wait.
TEST(GpuNormsInRoles, ReplaysMixWithSmallCalls) {
  GpuWorld world = make_gpu_world(2, config_for_roles());
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
    const auto norm_of = [&](std::size_t tokens, std::uint32_t seed) {
      return prepare({.tokens = tokens,
                      .hidden = 4096,
                      .residual_in_place = true,
                      .output_in_place = true,
                      .algorithm = Algorithm::two_shot,
                      .seed = seed,
                      .launch = tokens == 7 ? world.launch() : launch_of(world, 0)},
                     2, rank);
    };
    const std::vector<RankNorm> large{norm_of(rows_of(4096), 1), norm_of(rows_of(4096), 2)};
    const RankNorm small = norm_of(7, 3);
    GpuNorm on_gpu(gpu, large[0]), beside(gpu, small);
    const Graph graph(gpu, [&] { on_gpu.call(communicator); });
    for (std::size_t turn = 0; turn < 12; ++turn) {
      on_gpu.fill(large[turn % 2]);
      beside.fill(small);
      graph.launch(gpu.stream());
      beside.call(communicator);
      on_gpu.check(large[turn % 2]);
      beside.check(small);
      communicator.check();
    }
  }));
}

// Movers and blocks that norm wait for a rank that does not come; all of them end, and name it.
TEST(GpuNormsInRoles, AMissingRankIsNamed) {
  Config config = config_for_roles();
  config.deadline = std::chrono::milliseconds(300);
  GpuWorld world = make_gpu_world(2, config);
  const Norm norm{
      .tokens = rows_of(4096), .hidden = 4096, .algorithm = Algorithm::two_shot, .launch = launch_of(world, 0)};
  const auto endings = run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
    run_on_gpu_rank(communicator, gpu, norm);
    gpu.reset();
    if (rank == 0) run_on_gpu_rank(communicator, gpu, norm);
  });
  expect_missing_rank_named(endings, 1, fmt::format("all_reduce_rms_norm bf16[{}, 4096]", norm.tokens));
}

}  // namespace
}  // namespace weft::test
