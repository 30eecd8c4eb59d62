// Reports of the simulator's tests, for people and for tools/reliability_tables.py.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "sim/explore.hpp"

namespace weft::sim {

// Makes a name that GoogleTest accepts.
inline std::string identifier(std::string name) {
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return name;
}

// Whether a seeded bug was found. The simulator's own failures, such as a lack of room, do not count.
inline bool is_find(const Failure& failure) {
  return failure && failure.kind != FailureKind::internal;
}

// The number of schedules of a set-up with faults: for each step at which a rank stops, or in all.
inline std::uint64_t fault_executions(const Setup& setup) {
  return setup.faults.stopping_rank >= 0 ? 8 : 1'000;
}

// The number of random schedules of a set-up without faults. Its seeded bugs must be found within it. The record has
// more of each (tools/reliability_tables.py).
inline std::uint64_t random_executions(const Setup& setup) {
  return setup.small ? 10'000 : 1'000;
}

// The search for a bug that few executions show. Its seed and number are fixed, so every run has the same chance.
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
