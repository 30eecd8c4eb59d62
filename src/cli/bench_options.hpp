// What all benchmarks share: options, the loop over the points, and the output.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "measure.hpp"
#include "report.hpp"
#include "table.hpp"

namespace weft::cli {

struct BenchOptions {
  int ranks = 0;
  Device device = Device::automatic;
  DataType type = DataType::bf16;
  ReduceOp op = ReduceOp::sum;
  Data data = Data::integers;
  int samples = 15;
  double deadline = 30;  // seconds
  std::string json;
  std::string csv;

  void add_to(CLI::App& app);
  Ranks::Args ranks_args() const;
  BenchArgs bench_args(std::size_t max_bytes) const;
  // stdout is taken by --json - or --csv -.
  bool tables_on_stdout() const { return json != "-" && csv != "-"; }
};

// Runs the points, with a progress bar, and complains of wrong ones on stderr. On CPU ranks the points of one size take
// turns, so that whatever else the machine does meanwhile falls on all of them.
std::vector<Result> run_points(Ranks& ranks, Bench& bench, const std::vector<Point>& points, int samples);

// "4 CPU ranks, shared memory, 4 threads; weft 0.1.0 (commit, dirty)": the line over every table.
std::string headline(const Ranks& ranks);

// The cell for a result: µs, "WRONG" or "-".
std::string cell(const Result* result);
std::string microseconds(double us);

const Result* find(const std::vector<Result>& results, std::size_t bytes, Contender contender, Method method);
// The fastest correct result of those contenders that `wanted` accepts; null when there is none.
const Result* fastest(const std::vector<Result>& results, std::size_t bytes, Method method,
                      const std::function<bool(Contender)>& wanted);

bool all_correct(const std::vector<Result>& results);

}  // namespace weft::cli
