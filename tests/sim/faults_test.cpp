// Slow, stopping and different ranks: the others end in bounded steps with an error that names the rank to blame.
#include <gtest/gtest.h>

#include "seed.hpp"
#include "sim/explore.hpp"
#include "sim/fault_setups.hpp"
#include "telling.hpp"

namespace weft::sim {
namespace {

std::vector<std::string> names() {
  std::vector<std::string> names;
  for (const Setup& setup : all_fault_setups()) names.push_back(setup.name);
  return names;
}

// A rank that stops does so at every single one of its steps.
class Faults : public testing::TestWithParam<std::string> {};
TEST_P(Faults, EndAsTheyMust) {
  const sim::Setup& setup = find_setup(GetParam());
  AllReduceProgram program(setup);
  const ExploreArgs args{.strategy = Strategy::random, .seed = run_seed(), .executions = fault_executions(setup)};
  const Report report = explore(program, args);
  RecordProperty("setup", setup.name);
  RecordProperty("strategy", "fault");
  RecordProperty("executions", std::to_string(report.executions));
  RecordProperty("steps", std::to_string(report.steps));
  EXPECT_FALSE(report.failure) << story(setup.name, args, report) << again();
}
INSTANTIATE_TEST_SUITE_P(Sim, Faults, testing::ValuesIn(names()),
                         [](const auto& info) { return identifier(info.param); });

}  // namespace
}  // namespace weft::sim
