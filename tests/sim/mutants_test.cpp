// Every seeded bug of mutants.json is found. docs/reliability.md records how soon, and by which test. The bugs of
// mutants_deep.json and mutants_time.json have tests of their own.
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>

#include "far.hpp"
#include "mutant_number.hpp"
#include "primitives.hpp"
#include "sim/explore.hpp"
#include "sim/fault_setups.hpp"
#include "telling.hpp"

namespace weft::sim {
namespace {

class Mutants : public testing::TestWithParam<int> {
 protected:
  void TearDown() override { detail::active_mutant = 0; }

  void tell(const std::string& setup, std::string_view killed_by, std::uint64_t schedules, const std::string& what) {
    RecordProperty("setup", setup);
    RecordProperty("killed_by", std::string(killed_by));
    RecordProperty("schedules", std::to_string(schedules));
    RecordProperty("what", what);
  }

  // A set-up that fails without the mutant has not found it.
  void expect_healthy(const sim::Setup& setup, const ExploreArgs& args) {
    detail::active_mutant = 0;
    AllReduceProgram program(setup);
    const Report healthy = explore(program, args);
    EXPECT_FALSE(healthy.failure) << story(setup.name, args, healthy);
  }

  // The set-up's layout and channels are built with the mutant on, as in production.
  void look_in_schedules(int mutant, const sim::Setup& setup) {
    expect_healthy(setup, {.strategy = Strategy::random, .seed = 1, .executions = 100});
    detail::active_mutant = mutant;
    AllReduceProgram program(setup);
    const Report report =
        explore(program, {.strategy = Strategy::random, .seed = 1, .executions = random_executions(setup)});
    tell(setup.name, name(report.failure.kind), report.executions, report.failure.what);
    EXPECT_TRUE(is_find(report.failure)) << report.failure.what << "\nnot found by " << report.executions
                                         << " schedules of " << setup.name;
  }

  // Searches all set-ups of a kind, smallest first.
  void look_in_faults(int mutant, const std::string& kind) {
    detail::active_mutant = mutant;
    std::uint64_t executions = 0;
    for (const unsigned ranks : {2u, 3u, 4u}) {
      for (const sim::Setup& setup : all_fault_setups()) {
        if (setup.ranks != ranks || !setup.name.starts_with(kind + "-")) continue;
        AllReduceProgram program(setup);
        const ExploreArgs args{.strategy = Strategy::random, .seed = 11, .executions = fault_executions(setup)};
        const Report report = explore(program, args);
        executions += report.executions;
        ASSERT_NE(report.failure.kind, FailureKind::internal) << setup.name << ": " << report.failure.what;
        if (!is_find(report.failure)) continue;
        tell(setup.name, name(report.failure.kind), executions, report.failure.what);
        return expect_healthy(setup, args);
      }
    }
    ADD_FAILURE() << "not found by " << executions << " executions";
  }

  // For mutants that only break the order of two accesses, which Relacy reports as a race.
  void look_in_primitives(int mutant, const std::string& primitive) {
    const auto* const found = std::ranges::find(kPrimitiveNames, primitive);
    ASSERT_NE(found, std::end(kPrimitiveNames)) << primitive;
    detail::active_mutant = mutant;
    const RelacyVerdict verdict = relacy_verdict(static_cast<Primitive>(found - std::begin(kPrimitiveNames)));
    EXPECT_NE(verdict.text, "SUCCESS") << "not found by " << kRelacyExecutions << " executions";
    tell(primitive + " under Relacy", "race", verdict.execution, std::string(verdict.text));
  }

  void look_far_away(int mutant, const std::string& setup) {
    detail::active_mutant = mutant;
    const std::string wrong = what_goes_wrong_far_away(1'000'000'000);
    EXPECT_NE(wrong, "") << "not found";
    tell(setup, "wrong result", 1, wrong);
  }
};

TEST_P(Mutants, IsKilled) {
  const detail::MutantInfo& mutant = detail::kMutants[GetParam() - 1];
  RecordProperty("mutant", std::string(mutant.name));
  const std::string setup(mutant.setup);
  if (mutant.where == "schedules") return look_in_schedules(GetParam(), find_setup(setup));
  if (mutant.where == "faults") return look_in_faults(GetParam(), setup);
  if (mutant.where == "primitives") return look_in_primitives(GetParam(), setup);
  ASSERT_EQ(mutant.where, "far offsets");
  look_far_away(GetParam(), setup);
}
INSTANTIATE_TEST_SUITE_P(Sim, Mutants, testing::ValuesIn(mutants(Shown::by_many)), mutant_test_name);

}  // namespace
}  // namespace weft::sim
