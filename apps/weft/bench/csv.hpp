// Results as CSV for programs: a line for each measured thing, ASCII names, plain numbers, bytes as bytes. A missing
// value is an empty cell.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/columns_file.hpp"
#include "bench/moe_measure.hpp"
#include "workloads/cores.hpp"
#include "workloads/measure.hpp"

namespace weft::cli {

struct CsvArgs {
  int ranks = 0;
  Crowd crowd = {};
  std::vector<std::uint32_t> payload_bytes = {};  // of exchanges
};

// operation, load, padding, ranks, type, op, rows, hidden, bytes, contender, method, blocks, threads, algorithm,
// verdict, samples, us_min, us_median, us_max, gb_per_s, payloads, speed_up. For exchanges, rows are tokens per rank,
// and bytes are those that cross the links per rank (plain copy: those that are read and written). Payloads are the
// bytes of each that a dispatch carries, "896+4".
std::string to_csv(const CsvArgs& args, const std::vector<Result>& results,
                   const std::vector<MoeResult>& exchanges = {}, const std::vector<BesideColumn>& columns = {});

}  // namespace weft::cli
