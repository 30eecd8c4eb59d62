// The tests have teeth: every seeded bug of mutants.json is found. How soon, and by what, goes into
// docs/reliability.md.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "inject.hpp"
#include "mutant.hpp"
#include "telling.hpp"

namespace weft::sim {
namespace {

struct Mutant {
  int number;
  std::string name, setup;
  bool fault;
};

std::vector<Mutant> mutants() {
  std::ifstream file(WEFT_MUTANTS_JSON);
  std::vector<Mutant> all;
  for (const auto& entry : nlohmann::json::parse(file)) {
    all.push_back({.number = static_cast<int>(all.size()) + 1,
                   .name = entry.at("name"),
                   .setup = entry.at("setups").at(0),
                   .fault = entry.value("fault", false)});
  }
  return all;
}

class Mutants : public testing::TestWithParam<Mutant> {
 protected:
  void TearDown() override { detail::active_mutant = 0; }
};

// The set-up's layout and channels are built with the mutant on, as production would.
TEST_P(Mutants, IsKilled) {
  const Mutant& mutant = GetParam();
  RecordProperty("mutant", mutant.name);
  RecordProperty("setup", mutant.setup);
  if (!mutant.fault) {
    const sim::Setup& setup = find_setup(mutant.setup);
    const ExploreArgs args{.strategy = Strategy::random, .seed = 1, .executions = 100'000};
    {
      AllReduceProgram program(setup);
      const ExploreArgs few{.strategy = Strategy::random, .seed = 1, .executions = 100};
      const Report healthy = explore(program, few);
      ASSERT_FALSE(healthy.failure) << story(setup.name, few, healthy);
    }
    detail::active_mutant = mutant.number;
    AllReduceProgram program(setup);
    const Report report = explore(program, args);
    RecordProperty("killed_by", std::string(name(report.failure.kind)));
    RecordProperty("schedules", std::to_string(report.executions));
    RecordProperty("choices", static_cast<int>(report.schedule.size()));
    RecordProperty("what", report.failure.what);
    EXPECT_TRUE(report.failure) << "not found by " << report.executions << " schedules of " << setup.name;
    EXPECT_NE(report.failure.kind, FailureKind::internal) << report.failure.what;
    return;
  }
  detail::active_mutant = mutant.number;
  Injection result;
  std::uint64_t executions = 0;
  for (const unsigned ranks : {2u, 3u, 4u}) {
    for (const std::string& protocol : fault_protocols()) {
      if (!result.wrong.empty()) break;
      AllReduceProgram program(fault_setup({.kind = mutant.setup, .protocol = protocol, .ranks = ranks}));
      result = inject(program, program.setup().faults.stopping_rank < 0 ? 5'000 : 8, 11);
      executions += result.executions;
    }
  }
  RecordProperty("killed_by", result.wrong.substr(0, result.wrong.find(':')));
  RecordProperty("schedules", std::to_string(executions));
  RecordProperty("what", result.wrong);
  EXPECT_NE(result.wrong, "") << "not found by " << executions << " executions";
}
INSTANTIATE_TEST_SUITE_P(Sim, Mutants, testing::ValuesIn(mutants()),
                         [](const auto& info) { return identifier(info.param.name); });

}  // namespace
}  // namespace weft::sim
