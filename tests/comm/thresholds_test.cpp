// Calls of random sizes across every threshold of a table with many steps. Each size's step serves it, and results have
// the same bits on both sides.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>
#include <set>
#include <string>

#include "comm/state.hpp"
#include "support/columns.hpp"
#include "support/move_mixes.hpp"
#include "support/normed_crossings.hpp"
#include "support/norms.hpp"
#include "support/ranks.hpp"
#include "support/sanitized.hpp"
#include "support/thresholds.hpp"
#include "support/tuned_config.hpp"
#include "support/world.hpp"
#include "tuning/tuning.hpp"
#include "weft/crossings.hpp"

namespace weft::test {
namespace {

using detail::TuningStep;
using detail::TuningTable;

Config with_steps(const Config& config, const std::vector<TuningStep>& steps, int ranks) {
  return with_tuning_file(config, {{.processor = {"CPU"}, .ranks = ranks, .origin = "measured", .steps = steps}},
                          fmt::format("thresholds.{}.{}", ranks, steps.size()));
}

class Thresholds : public testing::TestWithParam<int> {
 protected:
  // Five ranks take turns on the cores of a small machine.
  static std::size_t calls() { return static_cast<std::size_t>(repeated(GetParam() == 5 ? 400 : 1000)); }
};
INSTANTIATE_TEST_SUITE_P(Ranks, Thresholds, testing::ValuesIn(world_sizes({2, 3, 5})));

TEST_P(Thresholds, AllReducesOnBothSidesOfEach) {
  const int ranks = GetParam();
  const auto steps = random_steps(static_cast<std::uint32_t>(ranks), 40);
  const std::vector<Prepared> prepared = prepare_all(cases_around(steps, calls()), ranks);
  for (const Config& config : {cpu_config(), small_pieces()}) {
    expect_all_well(run_world(ranks, with_steps(config, steps, ranks), [&](Communicator& communicator, int rank) {
      for (const Prepared& p : prepared) {
        run_on_cpu_rank(communicator, p, rank);
        expect_served_by(communicator, algorithm_for(steps, p.call.type, p.call.count * size_of(p.call.type)));
      }
    }));
  }
}

// One hop if the table says one-shot, else two.
TEST_P(Thresholds, NormsOnBothSidesOfEach) {
  const int ranks = GetParam();
  const auto steps = random_steps(static_cast<std::uint32_t>(ranks) + 100, 20);
  std::mt19937 random(2);
  std::vector<Norm> norms;
  for (std::size_t i = 0; i + 1 < steps.size(); ++i) {
    const std::size_t hidden = 8 * (1 + i % 4), row = 2 * hidden, rows = steps[i].up_to / row;
    for (const std::size_t tokens : {rows - 1, rows, rows + 1}) {
      norms.push_back({.tokens = tokens, .hidden = hidden, .fp8 = i % 3 == 0, .seed = static_cast<std::uint32_t>(i)});
      if (i % 2 == 0) norms.back().type = DataType::f16;
    }
  }
  const std::size_t most = steps[steps.size() - 2].up_to * 5 / 4;
  while (norms.size() < calls()) {
    const std::size_t hidden = 8 * (1 + random() % 64);
    norms.push_back({.tokens = random() % (most / (2 * hidden) + 1),
                     .hidden = hidden,
                     .type = random() % 2 == 0 ? DataType::bf16 : DataType::f16,
                     .fp8 = random() % 4 == 0,
                     .seed = static_cast<std::uint32_t>(norms.size())});
  }
  std::shuffle(norms.begin(), norms.end(), random);
  expect_all_well(run_world(ranks, with_steps(cpu_config(), steps, ranks), [&](Communicator& communicator, int) {
    for (const Norm& norm : norms) {
      run_on_cpu_rank(communicator, norm);
      const std::size_t bytes = norm.tokens * norm.hidden * 2;
      const bool one_hop = algorithm_for(steps, norm.type, bytes) == Algorithm::one_shot;
      expect_served_by(communicator, one_hop ? Algorithm::one_shot : Algorithm::two_shot);
    }
  }));
}

std::string algorithm_in(const std::string& operation) {
  for (const Algorithm algorithm : kAlgorithms) {
    if (operation.find(" " + std::string(name(algorithm)) + " ") != std::string::npos)
      return std::string(name(algorithm));
  }
  return "none";
}

// The same calls under tables that are drawn. Each result has the bits of the reference, whichever algorithm made it.
TEST(AnyTable, GivesTheSameBits) {
  constexpr int ranks = 3;
  const std::vector<Prepared> sums = prepare_all(cases_around(random_steps(1, 6), 40), ranks);
  std::vector<Norm> norms = mixed_norms(24, 5);
  for (Norm& norm : norms) norm.algorithm = Algorithm::automatic;
  std::vector<std::set<std::string>> served(sums.size() + norms.size());  // by the algorithms of all tables
  for (std::uint32_t seed = 1; seed <= 6; ++seed) {
    SCOPED_TRACE(fmt::format("tables of seed {}", seed));
    const std::vector<TuningTable> tables{
        {.processor = {"CPU"}, .ranks = ranks, .origin = "measured", .steps = random_steps(seed, 12)},
        table_of_norms(steps_of_norms(seed), ranks)};
    const Config config = with_tuning_file(cpu_config(), tables, fmt::format("any-table.{}", seed));
    expect_all_well(run_world(ranks, config, [&](Communicator& communicator, int rank) {
      const auto note = [&](std::size_t call) {
        const std::string algorithm = algorithm_in(communicator.world().recent_calls().back().operation);
        if (rank == 0) served[call].insert(algorithm);
      };
      for (std::size_t i = 0; i < sums.size(); ++i) {
        run_on_cpu_rank(communicator, sums[i], rank);
        note(i);
      }
      for (std::size_t i = 0; i < norms.size(); ++i) {
        run_on_cpu_rank(communicator, norms[i]);
        note(sums.size() + i);
      }
    }));
  }
  const auto several = std::ranges::count_if(served, [](const auto& algorithms) { return algorithms.size() > 1; });
  EXPECT_GT(several, std::ssize(served) / 2) << "most calls had one algorithm under all tables";
}

// The same for gathers, scatters, crossings and columns, whose references know nothing of a way either.
TEST(AnyTable, GivesMovesTheSameBits) {
  constexpr int ranks = 4;
  const std::vector<Move> moves = random_moves(60, ranks, 33);
  const std::vector<NormedCrossing> normed = mixed_normed_crossings(ranks, 20);
  for (std::uint32_t seed = 1; seed <= 8; ++seed) {
    SCOPED_TRACE(fmt::format("tables of seed {}", seed));
    const Config config =
        with_tuning_file(cpu_config(), random_move_tables(ranks, 10 * seed), fmt::format("any-move-table.{}", seed));
    expect_all_well(run_world(ranks, config, [&](Communicator& communicator, int) {
      for (const Move& move : moves) run_on_cpu_rank(communicator, move);
      for (const NormedCrossing& crossing : normed) run_on_cpu_rank(communicator, crossing);
      for (const ColumnCase& c : few_column_cases(ranks)) run_on_cpu_rank(communicator, c);
    }));
  }
}

constexpr detail::TunedOperation kMoves[] = {detail::TunedOperation::all_gather, detail::TunedOperation::reduce_scatter,
                                             detail::TunedOperation::crossing,
                                             detail::TunedOperation::crossing_rms_norm};

// A call follows its operation's table and no other: ranks whose tables differ in it do not understand each other.
TEST(MoveTables, ServeTheirOwnOperation) {
  const auto floats = [](std::size_t count) { return std::vector<float>(count, 1.0f); };
  const std::vector<std::int32_t> counts{8, 8};
  const auto gather = [&](const Communicator& communicator) {
    const std::vector<float> input = floats(64);
    std::vector<float> output(128);
    all_gather_into_tensor(communicator, {.input = input.data(), .output = output.data(), .rows = 1, .row_bytes = 256});
  };
  const auto scatter = [&](const Communicator& communicator) {
    const std::vector<float> input = floats(128);
    std::vector<float> output(64);
    reduce_scatter_tensor(
        communicator, {.input = input.data(), .output = output.data(), .rows = 1, .width = 64, .type = DataType::f32});
  };
  const auto crossing = [&](const Communicator& communicator) {
    const std::vector<float> input = floats(16 * 64);
    std::vector<float> output(16 * 64);
    scatter_sums(communicator, {.input = input.data(),
                                .output = output.data(),
                                .width = 64,
                                .type = DataType::f32,
                                .group_ranks = 2,
                                .counts = {.rows = counts.data()},
                                .input_rows = 16,
                                .output_rows = 16});
  };
  const auto normed = [&](const Communicator& communicator) {
    run_on_cpu_rank(communicator, NormedCrossing{.counts = counts, .group_ranks = 2, .norm = {.hidden = 64}});
  };
  const std::function<void(const Communicator&)> calls[] = {gather, scatter, crossing, normed};
  for (std::size_t changed = 0; changed < std::size(kMoves); ++changed) {
    for (std::size_t called = 0; called < std::size(kMoves); ++called) {
      SCOPED_TRACE(fmt::format("{} with another table of {}", name(kMoves[called]), name(kMoves[changed])));
      const TuningTable chunks{.operation = kMoves[changed], .steps = {{.algorithm = detail::MoveWay::chunks}}};
      const TuningTable lines{.operation = kMoves[changed], .steps = {{.algorithm = detail::MoveWay::lines}}};
      const bool same = changed != called;
      const Config config = cpu_config(same ? std::chrono::seconds(5) : std::chrono::milliseconds(300));
      const auto endings = run_world(2, config, [&](Communicator& communicator, int rank) {
        communicator.world().state().try_table(kMoves[changed], rank == 0 ? &chunks : &lines);
        calls[called](communicator);
      });
      const bool well = std::ranges::all_of(endings, [](const Ending& ending) { return ending.what.empty(); });
      EXPECT_EQ(well, same) << endings[0].what << endings[1].what;
    }
  }
}

}  // namespace
}  // namespace weft::test
