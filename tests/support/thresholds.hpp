// Tables with many steps, and all-reduces of sizes around each step.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <random>
#include <utility>
#include <vector>

#include "support/cases.hpp"
#include "support/ranks.hpp"
#include "tuning/tuning.hpp"

namespace weft::test {

// Thresholds are multiples of it, so that every type has such sizes, also where the wire has twice its bytes.
inline constexpr std::size_t kThresholdStep = 16;

// Neighbouring steps differ.
inline std::vector<detail::TuningStep> random_steps(std::uint32_t seed, int count) {
  std::mt19937 random(seed);
  std::vector<detail::TuningStep> steps;
  std::uint64_t up_to = 0;
  for (int i = 0; i < count; ++i) {
    up_to += kThresholdStep * (1 + random() % 150);
    detail::TuningStep step{.up_to = i + 1 == count ? UINT64_MAX : up_to};
    do {
      step.algorithm = kAlgorithms[random() % std::size(kAlgorithms)];
    } while (i != 0 && step.algorithm == steps.back().algorithm);
    steps.push_back(step);
  }
  return steps;
}

// A table of a move's operation: each way up to any size, a few steps of it with grids, and any worth of a detour.
inline detail::TuningTable random_move_table(detail::TunedOperation operation, int ranks, std::uint32_t seed) {
  std::mt19937 random(seed);
  const detail::TunedKind& kind = kind_of(operation);
  detail::TuningTable table{.processor = {"CPU"}, .ranks = ranks, .operation = operation, .origin = "measured"};
  if (kind.detours && random() % 2 == 0) table.detour_bytes = 16 * (1 + random() % 64);
  std::uint64_t up_to = 0;
  for (const detail::TunedAlgorithm way : kind.algorithms) {
    for (std::uint32_t steps = random() % 3; steps != 0; --steps) {
      up_to += kThresholdStep * (1 + random() % 60);
      detail::TuningStep step{.up_to = up_to, .algorithm = way};
      if (kind.grids && random() % 2 == 0) step.blocks = 2 + static_cast<int>(random() % 4);
      if (kind.grids && random() % 2 == 0) step.threads = 32 * (1 + static_cast<int>(random() % 4));
      table.steps.push_back(step);
    }
  }
  if (table.steps.empty()) table.steps.push_back({.algorithm = kind.algorithms[random() % kind.algorithms.size()]});
  table.steps.back().up_to = UINT64_MAX;
  return table;
}

// One of each move.
inline std::vector<detail::TuningTable> random_move_tables(int ranks, std::uint32_t seed) {
  std::vector<detail::TuningTable> tables;
  for (const detail::TunedKind& kind : detail::kTunedBySize)
    if (kind.is_move()) tables.push_back(random_move_table(kind.operation, ranks, seed));
  return tables;
}

// Steps of a norm, which has no more than two ways; and their table.
inline std::vector<detail::TuningStep> steps_of_norms(std::uint32_t seed) {
  std::vector<detail::TuningStep> steps = random_steps(100 + seed, 12);
  for (detail::TuningStep& step : steps)
    if (step.algorithm == Algorithm::pipelined) step.algorithm = Algorithm::two_shot;
  return steps;
}
inline detail::TuningTable table_of_norms(std::vector<detail::TuningStep> steps, int ranks) {
  return {.processor = {"CPU"},
          .ranks = ranks,
          .operation = detail::TunedOperation::all_reduce_rms_norm,
          .origin = "measured",
          .steps = std::move(steps)};
}

inline Algorithm algorithm_for(const std::vector<detail::TuningStep>& steps, DataType type, std::size_t bytes) {
  for (const detail::TuningStep& step : steps) {
    const bool twice = !is_floating(type) && step.algorithm == Algorithm::one_shot;
    if ((twice ? 2 * bytes : bytes) <= step.up_to) return step.algorithm.algorithm();
  }
  return steps.back().algorithm.algorithm();
}

inline void expect_served_by(const Group& group, Algorithm algorithm) {
  const std::string call = group.recent_calls().back().operation;
  ensure(call.find(" " + std::string(name(algorithm)) + " ") != std::string::npos,
         fmt::format("{} is not served by {}", call, name(algorithm)));
}

// At least `calls` cases in random order: at, below and above each threshold, and of random sizes. The expected result
// does not depend on the algorithm, so all algorithms give a message the same bits.
inline std::vector<Case> cases_around(const std::vector<detail::TuningStep>& steps, std::size_t calls) {
  std::mt19937 random(1);
  std::vector<Case> cases;
  const auto add = [&](std::size_t count, DataType type) {
    cases.push_back({.count = count,
                     .type = type,
                     .op = kOps[random() % std::size(kOps)],
                     .fill = Fill::random,
                     .in_place = random() % 2 == 0,
                     .output_shift = random() % 3,
                     .seed = static_cast<std::uint32_t>(cases.size())});
  };
  for (std::size_t i = 0; i + 1 < steps.size(); ++i) {
    const DataType type = kTypes[(i + random()) % std::size(kTypes)];
    const std::size_t at = steps[i].up_to / size_of(type);
    for (const std::size_t count : {at - 1, at, at + 1}) add(count, type);
    if (is_floating(type) || steps[i].algorithm != Algorithm::one_shot) continue;
    for (const std::size_t count : {at / 2 - 1, at / 2, at / 2 + 1}) add(count, type);  // packs of 8 bytes
  }
  const std::size_t most = steps[steps.size() - 2].up_to * 3 / 2;
  while (cases.size() < calls) {
    const DataType type = kTypes[random() % std::size(kTypes)];
    add(random() % (most / size_of(type)), type);
  }
  std::shuffle(cases.begin(), cases.end(), random);
  return cases;
}

}  // namespace weft::test
