// All-reduces of GPU ranks, of random sizes across every threshold of a table with many steps; and moves, columns and
// norms under tables that are drawn.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "gpu/support/gpu_columns.hpp"
#include "gpu/support/gpu_move.hpp"
#include "gpu/support/gpu_norm.hpp"
#include "gpu/support/gpu_normed_crossing.hpp"
#include "gpu/support/gpu_world.hpp"
#include "support/move_mixes.hpp"
#include "support/thresholds.hpp"

namespace weft::test {
namespace {

class GpuThresholds : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, GpuThresholds, testing::Values(2, 3));

TEST_P(GpuThresholds, AThousandAllReducesOnBothSidesOfEach) {
  const int ranks = GetParam();
  const auto steps = random_steps(static_cast<std::uint32_t>(ranks), 40);
  GpuWorld world = make_gpu_world(ranks, with_steps(gpu_config(), "gpu-thresholds", steps, ranks));
  const std::vector<Prepared> prepared = prepare_for(world, cases_around(steps, 1000));
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
    for (const Prepared& p : prepared) {
      run_on_gpu_rank(communicator, gpu, p, rank);
      expect_served_by(communicator, algorithm_for(steps, p.call.type, p.call.count * size_of(p.call.type)));
    }
  }));
}

TEST_P(GpuThresholds, AnyTableGivesMovesTheSameBits) {
  const int ranks = GetParam();
  const std::vector<Move> moves = random_moves(60, ranks, 33);
  const std::vector<NormedCrossing> normed = mixed_normed_crossings(ranks, 20);
  for (std::uint32_t seed = 1; seed <= 4; ++seed) {
    SCOPED_TRACE(fmt::format("tables of seed {}", seed));
    GpuWorld world =
        make_gpu_world(ranks, with_tables(gpu_config(), "gpu-any-table", random_move_tables(ranks, 10 * seed), ranks));
    expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int) {
      for (const Move& move : moves) run_on_gpu_rank(communicator, gpu, move);
      for (const NormedCrossing& crossing : normed) run_on_gpu_rank(communicator, gpu, crossing);
      for (const ColumnCase& c : few_column_cases(ranks)) run_on_gpu_rank(communicator, gpu, c);
    }));
  }
}

// One hop if the table says one-shot, else two.
TEST_P(GpuThresholds, AnyTableGivesNormsTheSameBits) {
  const int ranks = GetParam();
  const std::vector<Norm> norms = mixed_norms(60, 5);
  for (std::uint32_t seed = 1; seed <= 4; ++seed) {
    SCOPED_TRACE(fmt::format("tables of seed {}", seed));
    const std::vector<detail::TuningStep> steps = steps_of_norms(seed);
    const Config config = with_tables(gpu_config(), "gpu-any-norm-table", {table_of_norms(steps, ranks)}, ranks);
    GpuWorld world = make_gpu_world(ranks, config);
    expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int) {
      for (Norm norm : norms) {
        norm.algorithm = Algorithm::automatic;
        norm.launch = world.launch();
        run_on_gpu_rank(communicator, gpu, norm);
        expect_served_by(communicator, algorithm_for(steps, norm.type, norm.tokens * norm.hidden * 2));
      }
    }));
  }
}

}  // namespace
}  // namespace weft::test
