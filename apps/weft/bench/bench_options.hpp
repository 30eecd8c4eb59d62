// Options, the loop over the points, and the output of all benchmarks.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bench/moe_measure.hpp"
#include "bench/report.hpp"
#include "common/table.hpp"
#include "workloads/measure.hpp"

namespace weft::cli {

struct RunArgs;

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
  std::string plot;
  std::string tuning;
  bool multicast = false;
  bool small_buffers = false;
  bool share_gpus = false;

  void add_to(CLI::App& app);
  void add_data_to(CLI::App& app);  // for commands that take values of --data
  void add_op_to(CLI::App& app);
  void add_sharing_to(CLI::App& app);  // for commands that use ranks_at_hand()
  void add_tuning_to(CLI::App& app);   // for commands whose ways come from tables
  // Throws before anything is started if the request cannot be served or an output cannot be written.
  Ranks::Args ranks_args() const;
  // For a layout that may be for more GPUs than there are: it is measured on those at hand, unless ranks share them. In
  // a launched job the launcher decides how many ranks there are.
  Ranks::Args ranks_at_hand() const;
  BenchArgs bench_args(std::size_t max_bytes) const;
  // To the files of --json and --plot.
  bool wants_report() const { return !json.empty() || !plot.empty(); }
  void write(const nlohmann::json& report) const;
  // To those files, and to that of --csv.
  void write_results(const RunArgs& run, const Ranks& ranks, const std::vector<Result>& results) const;
  // False if --json - or --csv - takes stdout.
  bool tables_on_stdout() const { return json != "-" && csv != "-"; }
};

// Runs the points with a progress bar, and reports wrong results on stderr. On CPU ranks the points of one size take
// turns, so that other load on the machine affects all of them.
std::vector<Result> run_points(Ranks& ranks, Bench& bench, const std::vector<Point>& points, int samples);

// The bench's methods that --method names: all or one. Throws Errc::invalid_argument.
std::vector<Method> methods_named(const Bench& bench, const std::string& text);
CLI::Option* add_method(CLI::App& app, std::string& text);
// --blocks and --threads of `kernels`, one value each; and --threads alone.
inline constexpr int kMostBlocks = 1024, kMostThreads = 512;
void add_launch(CLI::App& app, Launch& launch, const std::string& kernels, int most_threads = kMostThreads);
void add_threads(CLI::App& app, Launch& launch, int most_threads = kMostThreads);
inline constexpr std::string_view kInPairs = ", in clusters of two blocks";  // behind what is measured
// --cluster, as Launch::cluster.
void add_cluster(CLI::App& app, int& cluster);
// Throws Errc::invalid_argument if a number that the option gives is odd, and blocks come in twos.
void check_cluster(const std::string& option, std::int64_t blocks, int cluster);

// Options for files to and from bench/rivals.py.
void add_rival_files(CLI::App& app, std::string& tokens_out, std::string& columns);

// A table for each method.
void print_tables(const std::vector<Method>& methods, const std::function<Table(Method)>& table_of);
constexpr std::string_view explain(Method method) {
  switch (method) {
    case Method::batch:
      return "batches of calls between barriers, median, maximum over ranks";
    case Method::graph:
      return "CUDA graph of 20 operations, second of two replays, median, maximum over ranks";
    case Method::producer:
      return "the same with a kernel that rewrites the input before every operation; its own time is subtracted";
    case Method::vllm:
      break;
  }
  return "vLLM's benchmark: graph of 10 operations, 50 replays back to back, wall clock of rank 0, median of 3";
}

// Numbers of results: right ones, wrong ones, and those with nothing to compare.
struct Compared {
  std::size_t right = 0, wrong = 0, empty = 0;

  Compared operator+(const Compared& more) const {
    return {right + more.right, wrong + more.wrong, empty + more.empty};
  }
};
Compared compared(const std::vector<Result>& results);
Compared compared(const std::vector<MoeResult>& results);
// The name of the ranks' GPUs; empty for CPU ranks.
std::string gpu_of(const Ranks& ranks);
// The sentence under the tables.
std::string verdict_line(const Compared& sum);

struct RunArgs {
  std::string command;
  std::vector<std::string> arguments;  // as typed
  std::vector<std::string> notes = {};
  Crowd crowd = {};
};
RunInfo run_info(const RunArgs& run, const Ranks& ranks, const BenchOptions& options);

// "shared memory, 4 CPU ranks, 2 cores, weft 0.1.0 at (commit), RelWithDebInfo": the line over every table.
std::string headline(const Ranks& ranks);
std::string headline(const Ranks& ranks, const BenchOptions& options);  // with options that change what is measured

// The cell for a result: µs with its spread, "WRONG" or "-".
std::string cell(const Result* result);
// "12.3 (11.9…15.2)": the median, the least and the most. One sample has no spread.
std::string cell(const Figure& figure);
std::string microseconds(double us);
// Under every table: explains the cells above.
inline constexpr const char* kSpreadLegend = "µs: median (least…most) of the slowest rank's samples.\n";

// The contenders that were measured by a method, as they come: others get no column.
std::vector<Contender> contenders_in(const std::vector<Result>& results, Method method);

const Result* find(const std::vector<Result>& results, std::size_t bytes, Contender contender, Method method);
// … or with the operation, the load and the tokens of `point`, and with its padding, which no peer has.
const Result* in_row(const std::vector<Result>& results, const Point& point, Contender contender);
// The fastest correct result of the contenders that `wanted` accepts, or null. A bound is never chosen.
const Result* fastest(const std::vector<Result>& results, std::size_t bytes, Method method,
                      const std::function<bool(Contender)>& wanted);

bool all_correct(const std::vector<Result>& results);

}  // namespace weft::cli
