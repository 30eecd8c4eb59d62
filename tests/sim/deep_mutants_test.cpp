// Seeded bugs of mutants_deep.json: fewer than one execution in ten shows each of them, and all are found. So the
// search covers schedules and the memory model.
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include "mutant_number.hpp"
#include "sim/explore.hpp"
#include "telling.hpp"

namespace weft::sim {
namespace {

Report executions_of(const sim::Setup& setup, const ExploreArgs& args, int mutant) {
  detail::active_mutant = mutant;
  AllReduceProgram program(setup);
  return explore(program, args);
}

// The bug needs a stale read or a late store: no order of steps shows it if every load reads the newest message.
bool needs_weak_memory(const detail::MutantInfo& mutant) {
  return mutant.needs.starts_with("stale read: ") || mutant.needs.starts_with("late store: ");
}

class DeepMutants : public WithMutant, public testing::WithParamInterface<int> {};
TEST_P(DeepMutants, AreRareAndFound) {
  const detail::MutantInfo& mutant = detail::kMutants[GetParam() - 1];
  const sim::Setup& setup = find_setup(mutant.setup);
  const ExploreArgs args = deep_search(setup, mutant.scheduler);
  const Report healthy = executions_of(setup, args, 0);
  ASSERT_FALSE(healthy.failure) << story(setup.name, args, healthy);
  const Report report = executions_of(setup, args, GetParam());
  RecordProperty("mutant", std::string(mutant.name));
  RecordProperty("setup", setup.name);
  RecordProperty("killed_by", std::string(name(report.failure.kind)));
  RecordProperty("schedules", std::to_string(report.first));
  RecordProperty("found", std::to_string(report.failures));
  RecordProperty("of", std::to_string(report.executions));
  RecordProperty("scheduler", std::string(mutant.scheduler));
  RecordProperty("needs", std::string(mutant.needs));
  fmt::print("{}\n  needs {}\n  found in {} of {} executions, first in number {}: {}\n", mutant.name, mutant.needs,
             report.failures, report.executions, report.first, report.failure.what);
  EXPECT_TRUE(is_find(report.failure)) << "not found; " << report.failure.what;
  EXPECT_GT(report.first, 1u) << "the very first execution finds it: it belongs into mutants.json";
  EXPECT_LE(10 * report.failures, report.executions) << "too many executions find it: it belongs into mutants.json";
  if (!needs_weak_memory(mutant)) return;
  ExploreArgs orders = args;
  orders.newest = true;
  const Report of_orders = executions_of(setup, orders, GetParam());
  EXPECT_FALSE(of_orders.failure) << "an order alone shows it: " << of_orders.failure.what;
}
INSTANTIATE_TEST_SUITE_P(Sim, DeepMutants, testing::ValuesIn(mutants(Shown::by_few)), mutant_test_name);

TEST(DeepMutantsTable, SaysWhatEachNeeds) {
  ASSERT_GE(mutants(Shown::by_few).size(), 80u);
  EXPECT_GE(
      std::ranges::count_if(mutants(Shown::by_few), [](int n) { return needs_weak_memory(detail::kMutants[n - 1]); }),
      20);
  for (const int number : mutants(Shown::by_few)) {
    const detail::MutantInfo& mutant = detail::kMutants[number - 1];
    const bool said = std::ranges::any_of(
        std::vector<std::string_view>{"order: ", "stale read: ", "late store: "},
        [&](std::string_view what) { return mutant.needs.starts_with(what) && mutant.needs.size() > what.size(); });
    EXPECT_TRUE(said) << mutant.name << " needs \"" << mutant.needs << "\"";
  }
}

}  // namespace
}  // namespace weft::sim
