// Rates at which random and PCT schedules find a seeded bug, for authors of new ones (docs/reliability.md). Runs on
// demand only.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <iterator>
#include <regex>

#include "mutant_number.hpp"
#include "sim/explore.hpp"
#include "sim/fault_setups.hpp"
#include "telling.hpp"

namespace weft::sim {
namespace {

std::string set_to(const char* variable, const char* usual) {
  const char* const value = std::getenv(variable);
  return value != nullptr ? value : usual;
}

std::string rate(const sim::Setup& setup, Strategy strategy, std::uint64_t executions, bool newest = false) {
  AllReduceProgram program(setup);
  const ExploreArgs args{
      .strategy = strategy, .seed = 1, .executions = executions, .bound = 4, .counts = true, .newest = newest};
  const Report report = explore(program, args);
  if (report.failure.kind == FailureKind::internal) return fmt::format("{}: {}", name(strategy), report.failure.what);
  return fmt::format("{} {} of {}, first {} ({})", name(strategy), report.failures, report.executions, report.first,
                     name(report.failure.kind));
}

class MutantRates : public WithMutant {};
TEST_F(MutantRates, DISABLED_ArePrinted) {
  const std::regex of(set_to("WEFT_SIM_MUTANTS", ".*")), in(set_to("WEFT_SIM_SETUPS", ""));
  const std::uint64_t executions = std::stoull(set_to("WEFT_SIM_EXECUTIONS", "1000"));
  const bool own = set_to("WEFT_SIM_SETUPS", "").empty();
  for (int number = 1; number <= static_cast<int>(std::size(detail::kMutants)); ++number) {
    const detail::MutantInfo& mutant = detail::kMutants[number - 1];
    if (!std::regex_search(std::string(mutant.name), of)) continue;
    for (const auto* setups : {&all_setups(), &all_fault_setups()}) {
      for (const sim::Setup& setup : *setups) {
        if (own ? setup.name != mutant.setup : !std::regex_search(setup.name, in)) continue;
        detail::active_mutant = number;
        fmt::print("{} | {} | {} | {} | orders alone: {}\n", mutant.name, setup.name,
                   rate(setup, Strategy::random, executions), rate(setup, Strategy::pct, executions),
                   rate(setup, Strategy::random, executions, true));
        std::fflush(stdout);
      }
    }
  }
}

}  // namespace
}  // namespace weft::sim
