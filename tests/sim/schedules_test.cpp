// Every set-up under many schedules, new ones in every run. Small set-ups run under all schedules within a bound.
#include <gtest/gtest.h>

#include "seed.hpp"
#include "sim/explore.hpp"
#include "telling.hpp"

namespace weft::sim {
namespace {

std::vector<std::string> names_of(bool only_small) {
  std::vector<std::string> names;
  for (const Setup& setup : all_setups()) {
    if (!only_small || setup.small) names.push_back(setup.name);
  }
  return names;
}

std::string test_name(const testing::TestParamInfo<std::string>& info) {
  return identifier(info.param);
}

void run(const Setup& setup, const ExploreArgs& args) {
  AllReduceProgram program(setup);
  const Report report = explore(program, args);
  record(setup.name, args, report);
  EXPECT_FALSE(report.failure) << story(setup.name, args, report)
                               << (args.strategy == Strategy::exhaustive ? "" : again());
  if (args.strategy == Strategy::exhaustive) {
    EXPECT_TRUE(report.complete) << "the search ended after " << report.executions << " executions";
  }
}

class Exhaustive : public testing::TestWithParam<std::string> {};
TEST_P(Exhaustive, AllSchedulesWithinTheBoundAreRight) {
  const sim::Setup& setup = find_setup(GetParam());
  run(setup, {.strategy = Strategy::exhaustive, .executions = 10'000'000, .bound = setup.bound});
}
INSTANTIATE_TEST_SUITE_P(Sim, Exhaustive, testing::ValuesIn(names_of(true)), test_name);

class RandomSchedules : public testing::TestWithParam<std::string> {};
TEST_P(RandomSchedules, AreRight) {
  const sim::Setup& setup = find_setup(GetParam());
  run(setup, {.strategy = Strategy::random, .seed = run_seed(), .executions = random_executions(setup)});
}
INSTANTIATE_TEST_SUITE_P(Sim, RandomSchedules, testing::ValuesIn(names_of(false)), test_name);

class PctSchedules : public testing::TestWithParam<std::string> {};
TEST_P(PctSchedules, AreRight) {
  const sim::Setup& setup = find_setup(GetParam());
  run(setup, {.strategy = Strategy::pct, .seed = run_seed(), .executions = 500, .bound = 4});
}
INSTANTIATE_TEST_SUITE_P(Sim, PctSchedules, testing::ValuesIn(names_of(false)), test_name);

}  // namespace
}  // namespace weft::sim
