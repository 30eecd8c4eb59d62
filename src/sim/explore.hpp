// Runs a set-up under many schedules; a failure comes back small and readable.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "sim/all_reduce.hpp"

namespace weft::sim {

struct ExploreArgs {
  Strategy strategy = Strategy::random;
  std::uint64_t seed = 1;
  std::uint64_t executions = 10'000;  // at most; if a rank stops, for each step at which it can
  unsigned bound = 2;                 // of an exhaustive search, and change points of PCT
  bool counts = false;                // goes on after a failure, does not shrink it, and counts failures
  bool newest = false;                // as Scheduler::keep_newest(): only orders of steps
  std::function<void(std::uint64_t executions)> progress = {};  // called now and then
};
// As ExploreArgs::executions: an exhaustive search ends with the last schedule.
inline constexpr std::uint64_t kAllExecutions = std::numeric_limits<std::uint64_t>::max();

struct Report {
  std::uint64_t executions = 0, steps = 0;
  bool complete = false;  // exhaustive: there is no other schedule within the bound, at any step
  Failure failure;        // none: everything was right
  // If failures are counted: how many executions have failed, and the first of them, from 1.
  std::uint64_t failures = 0, first = 0;
  Schedule schedule;       // of the failure, shrunk
  std::uint64_t stop = 0;  // the step of its stream at which the rank stopped in the failure; 0: none did
  Schedule unused;         // replay: choices that the execution never came to
  std::vector<std::string> trace;
  bool listed = false;  // find_setup() finds the set-up
};

// If a rank stops in the set-up, it does so at every single one of its steps.
Report explore(AllReduceProgram& program, const ExploreArgs& args);

// One execution, written down. `stop`: the step at which the set-up's rank stops; 0: it does not.
Report replay(AllReduceProgram& program, const Schedule& schedule, std::uint64_t stop = 0);

// A failure in words: its trace, the fault, and how it was found. If the set-up has a name, also the command that
// repeats it.
std::string story(const std::string& setup, const ExploreArgs& args, const Report& report);

std::string_view name(Strategy strategy);

}  // namespace weft::sim
