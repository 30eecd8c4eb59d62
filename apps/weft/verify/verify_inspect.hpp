// What `weft verify` looks at: the machine's links, its ranks all together, and every pair of them.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "verify/verify_checks.hpp"
#include "workloads/measure.hpp"

namespace weft::cli {

inline constexpr int kMostVerifiedRanks = 64;  // whose pairs a communicator has splits for

inline constexpr std::size_t kLatencyBytes = 8 << 10;  // the message whose time is a pair's latency

struct VerifyArgs {
  Ranks::Args ranks;
  bool thorough = false;
  std::size_t most_bytes = 0;  // of a message, kLatencyBytes or more; 0: by device
};

struct Findings {
  bool leader = true;            // this process prints
  std::string headline, fabric;  // empty where the ranks did not come together
  int world = 0;
  Device device = Device::cpu;
  std::string left_out;  // which GPUs were not looked at, where nobody asked for that
  std::vector<Check> checks;
  std::vector<PairFigure> pairs;
  std::vector<Result> all_reduces;

  // What no verdict is about, and why; empty where there is nothing.
  std::string not_judged() const {
    const std::string figures = why_not_judged(pairs);
    return left_out + (left_out.empty() || figures.empty() ? "" : ". ") + figures;
  }
  bool passed() const {
    return std::ranges::all_of(checks, [](const Check& check) { return check.passed; });
  }
};

// Collective, as all that measures. Throws for bad arguments alone: what goes wrong is a check that failed.
Findings inspect(const VerifyArgs& args, const Machine& machine);

}  // namespace weft::cli
