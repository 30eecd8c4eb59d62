// Inspects the machine's links, all ranks together, and every pair of ranks for `weft verify`.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "verify/verify_checks.hpp"
#include "workloads/measure.hpp"

namespace weft::cli {

inline constexpr int kMostVerifiedRanks = 64;  // a communicator has splits for the pairs of so many

inline constexpr std::size_t kLatencyBytes = 8 << 10;  // a pair's latency is the time of this message

struct VerifyArgs {
  Ranks::Args ranks;
  bool thorough = false;
  std::size_t most_bytes = 0;  // largest message, kLatencyBytes or more; 0: by device
};

struct Findings {
  bool leader = true;            // this process prints
  std::string headline, fabric;  // empty if the ranks did not meet
  int world = 0;
  Device device = Device::cpu;
  std::string left_out;  // GPUs that are not checked although no option left them out
  std::vector<Check> checks;
  std::vector<PairFigure> pairs;
  std::vector<Result> all_reduces;

  // The findings without a verdict, and the reason; empty if there are none.
  std::string not_judged() const {
    const std::string figures = why_not_judged(pairs);
    return left_out + (left_out.empty() || figures.empty() ? "" : ". ") + figures;
  }
  bool passed() const {
    return std::ranges::all_of(checks, [](const Check& check) { return check.passed; });
  }
};

// Collective, since it measures. Throws only for bad arguments: any other fault is a failed check.
Findings inspect(const VerifyArgs& args, const Machine& machine);

}  // namespace weft::cli
