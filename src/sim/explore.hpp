// Runs a set-up under many schedules; a failure comes back small and readable.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/all_reduce.hpp"

namespace weft::sim {

struct ExploreArgs {
  Strategy strategy = Strategy::random;
  std::uint64_t seed = 1;
  std::uint64_t executions = 10'000;  // at most
  unsigned bound = 2;                 // of an exhaustive search, and change points of PCT
};

struct Report {
  std::uint64_t executions = 0, steps = 0;
  bool complete = false;  // exhaustive: there is no other schedule within the bound
  Failure failure;        // none: everything was right
  Schedule schedule;      // of the failure, shrunk
  Schedule unused;        // replay: choices that the execution never came to
  std::vector<std::string> trace;
};

Report explore(AllReduceProgram& program, const ExploreArgs& args);

// One execution, written down.
Report replay(AllReduceProgram& program, const Schedule& schedule);

// A failure in words: its trace, what is wrong, how it was found, and the command that repeats it.
std::string story(const std::string& setup, const ExploreArgs& args, const Report& report);

std::string_view name(Strategy strategy);

}  // namespace weft::sim
