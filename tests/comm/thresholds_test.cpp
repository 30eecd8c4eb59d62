// Calls of random sizes across every threshold of a table with many steps. Each size's step serves it, and results have
// the same bits on both sides.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <random>
#include <set>
#include <string>

#include "support/norms.hpp"
#include "support/ranks.hpp"
#include "support/sanitized.hpp"
#include "support/thresholds.hpp"
#include "support/world.hpp"
#include "tuning/tuning.hpp"

namespace weft::test {
namespace {

using detail::TuningStep;
using detail::TuningTable;

Config with_tables(Config config, const std::vector<TuningTable>& tables, const std::string& name) {
  config.tuning_file = fmt::format("{}{}.json", testing::TempDir(), name);
  std::ofstream(config.tuning_file) << detail::to_json(tables);
  return config;
}
Config with_steps(const Config& config, const std::vector<TuningStep>& steps, int ranks) {
  return with_tables(config, {{.processor = {"CPU"}, .ranks = ranks, .origin = "measured", .steps = steps}},
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
    std::vector<TuningStep> of_norms = random_steps(100 + seed, 12);
    for (TuningStep& step : of_norms) {
      if (step.algorithm == Algorithm::pipelined) step.algorithm = Algorithm::two_shot;
    }
    const std::vector<TuningTable> tables{
        {.processor = {"CPU"}, .ranks = ranks, .origin = "measured", .steps = random_steps(seed, 12)},
        {.processor = {"CPU"},
         .ranks = ranks,
         .operation = detail::TunedOperation::all_reduce_rms_norm,
         .origin = "measured",
         .steps = of_norms}};
    const Config config = with_tables(cpu_config(), tables, fmt::format("any-table.{}", seed));
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

}  // namespace
}  // namespace weft::test
