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
  std::uint64_t executions = 10'000;  // at most; where a rank stops, for each step at which it can
  unsigned bound = 2;                 // of an exhaustive search, and change points of PCT
  bool counts = false;                // goes on behind a failure, which it does not shrink, and counts them
  bool newest = false;                // as Scheduler::keep_newest(): orders of steps alone
  std::function<void(std::uint64_t executions)> progress = {};  // called now and then
};
// As ExploreArgs::executions: an exhaustive search ends with the last schedule.
inline constexpr std::uint64_t kAllExecutions = std::numeric_limits<std::uint64_t>::max();

struct Report {
  std::uint64_t executions = 0, steps = 0;
  bool complete = false;  // exhaustive: there is no other schedule within the bound, at any step
  Failure failure;        // none: everything was right
  // Where failures are counted: how many executions have failed, and which one first, from 1.
  std::uint64_t failures = 0, first = 0;
  Schedule schedule;       // of the failure, shrunk
  std::uint64_t stop = 0;  // the step of its stream at which the rank stopped in the failure; 0: none did
  Schedule unused;         // replay: choices that the execution never came to
  std::vector<std::string> trace;
  bool listed = false;  // find_setup() finds the set-up
};

// Where a rank stops in the set-up, it does so at every single one of its steps.
Report explore(AllReduceProgram& program, const ExploreArgs& args);

// One execution, written down. `stop`: where the rank stops that stops in this set-up; 0: it does not.
Report replay(AllReduceProgram& program, const Schedule& schedule, std::uint64_t stop = 0);

// A failure in words: its trace, what is wrong, how it was found, and what repeats it: a command, where the set-up is
// one of those that have a name.
std::string story(const std::string& setup, const ExploreArgs& args, const Report& report);

std::string_view name(Strategy strategy);

}  // namespace weft::sim
