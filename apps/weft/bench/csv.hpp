// Results as CSV for programs: a line for each thing measured, ASCII names, plain numbers, bytes as bytes, and nothing
// where there is nothing.
#pragma once

#include <string>
#include <vector>

#include "bench/moe_measure.hpp"
#include "workloads/cores.hpp"
#include "workloads/measure.hpp"

namespace weft::cli {

struct CsvArgs {
  int ranks = 0;
  Crowd crowd = {};
};

// operation, load, ranks, type, op, rows, hidden, bytes, contender, method, blocks, threads, algorithm, verdict,
// samples, us_min, us_median, us_max, gb_per_s, speed_up. Of exchanges: rows are tokens per rank, bytes what crosses
// the links per rank.
std::string to_csv(const CsvArgs& args, const std::vector<Result>& results,
                   const std::vector<MoeResult>& exchanges = {});

}  // namespace weft::cli
