// How the simulator's tests tell what they found: to a person, and to tools/reliability_tables.py.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "sim/explore.hpp"

namespace weft::sim {

// A name that GoogleTest accepts.
inline std::string identifier(std::string name) {
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return name;
}

// Whether a seeded bug has been found: the simulator's own failure, as when it has no room, says nothing of it.
inline bool is_find(const Failure& failure) {
  return failure && failure.kind != FailureKind::internal;
}

// How many schedules of a set-up with faults: for each step at which a rank stops, or in all.
inline std::uint64_t fault_executions(const Setup& setup) {
  return setup.faults.stopping_rank >= 0 ? 8 : 1'000;
}

// How many random schedules of a set-up without faults, by which its seeded bugs must be found, too. The record has
// more of each (tools/reliability_tables.py).
inline std::uint64_t random_executions(const Setup& setup) {
  return setup.small ? 10'000 : 1'000;
}

// How a bug that few executions show is looked for. Seed and number stay, so that every run finds it as often.
inline ExploreArgs deep_search(const Setup& setup, std::string_view scheduler) {
  const Strategy strategy = scheduler == name(Strategy::pct) ? Strategy::pct : Strategy::random;
  const std::uint64_t executions = setup.faults.stopping_rank >= 0 ? 16 : setup.faults.any() ? 4'000 : 2'000;
  return {.strategy = strategy, .seed = 1, .executions = executions, .bound = 4, .counts = true};
}

inline void record(const std::string& setup, const ExploreArgs& args, const Report& report) {
  testing::Test::RecordProperty("setup", setup);
  testing::Test::RecordProperty("strategy", std::string(name(args.strategy)));
  testing::Test::RecordProperty("bound", static_cast<int>(args.bound));
  testing::Test::RecordProperty("executions", std::to_string(report.executions));
  testing::Test::RecordProperty("steps", std::to_string(report.steps));
}

}  // namespace weft::sim
