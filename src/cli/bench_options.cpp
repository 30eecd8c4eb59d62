#include "bench_options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>

#include "core/build_info.hpp"
#include "options.hpp"
#include "plot.hpp"
#include "progress.hpp"
#include "sizes.hpp"

namespace weft::cli {

void BenchOptions::add_to(CLI::App& app) {
  app.add_option("--ranks", ranks, "Ranks, as threads of this process (default: every GPU, or 4 CPU ranks)")
      ->check(CLI::Range(1, 72));
  add_choice(app, "--device", device, {Device::automatic, Device::cpu, Device::cuda}, "Where the ranks live");
  app.add_option("--samples", samples, "Timed samples per point")->check(CLI::Range(1, 10000))->capture_default_str();
  app.add_option("--deadline", deadline, "Seconds that an operation may wait for a peer; 0: for ever")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
  app.add_option("--json", json, "Write everything, raw samples included, to this file (-: stdout)");
  app.add_option("--csv", csv, "Write the table to this file (-: stdout)");
  app.add_option("--plot", plot,
                 "Draw time and bandwidth over size, a line for each algorithm and peer: .png, .svg, .pdf");
}

void BenchOptions::add_data_to(CLI::App& app) {
  add_choice(app, "--data", data, {Data::integers, Data::random},
             "Inputs: integers, whose sums are exact (peers are held to the same bits), or random values of many "
             "magnitudes (Weft is still held to the bits of the reference, peers to a bound)");
}

void BenchOptions::write(const nlohmann::json& report) const {
  if (!json.empty()) write_text(json, report.dump(1) + "\n");
  if (!plot.empty()) cli::plot(report, plot);
}

void BenchOptions::add_tuning_to(CLI::App& app) {
  app.add_option("--tuning", tuning, "Tables that weft tune wrote, instead of the built-in ones");
}

void BenchOptions::add_op_to(CLI::App& app) {
  add_choice(app, "--op", op, {ReduceOp::sum, ReduceOp::max}, "Reduction");
}

Ranks::Args BenchOptions::ranks_args() const {
  check_outputs({{"--json", json}, {"--csv", csv}, {"--plot", plot}});
  if (!plot.empty()) check_plotting(plot);
  Ranks::Args args{.world_size = ranks, .device = device};
  args.config.tuning_file = tuning;
  args.config.multicast = multicast;
  args.config.deadline = std::chrono::nanoseconds(static_cast<std::int64_t>(deadline * 1e9));
  return args;
}

BenchArgs BenchOptions::bench_args(std::size_t max_bytes) const {
  return {.data = data, .max_bytes = max_bytes, .multicast = multicast};
}

namespace {

std::string described(const Point& point) {
  if (point.operation == Operation::all_reduce) return format_bytes(point.bytes());
  return fmt::format("{} {} {}", name(point.operation), name(point.load), format_bytes(point.bytes()));
}

}  // namespace

namespace {

// What was rejected, a launch say, said once for each reason. Where nothing is left of what Weft was asked, or of what
// it was asked to launch so, that is an error.
void explain_rejections(const Ranks& ranks, const std::vector<Result>& results) {
  const auto has_launch = [](const Result& r) { return r.point.launch.blocks != 0 || r.point.launch.threads != 0; };
  const bool any_launch = std::ranges::any_of(results, has_launch);
  std::set<std::string> said;
  bool asked = false, measured = false;
  for (const Result& result : results) {
    if (is_weft(result.point.contender) && has_launch(result) == any_launch) {
      asked = true;
      measured = measured || result.verdict != Verdict::unavailable;
    }
    if (result.verdict != Verdict::unavailable || result.detail.empty()) continue;
    if (!said.insert(fmt::format("{}: {}", name(result.point.contender), result.detail)).second) continue;
    if (ranks.leader())
      fmt::print(stderr, "not measured: {} of {}: {}\n", name(result.point.contender), described(result.point),
                 result.detail);
  }
  if (asked && !measured) throw Error(Errc::invalid_argument, "nothing of Weft's could be measured");
}

}  // namespace

std::vector<Result> run_points(Ranks& ranks, Bench& bench, const std::vector<Point>& points, int samples) {
  const int turns = ranks.device() == Device::cpu ? std::min(samples, 3) : 1;
  Progress progress(points.size() * static_cast<std::size_t>(turns), ranks.leader());
  std::vector<Result> results;
  for (std::size_t begin = 0; begin < points.size(); begin = results.size()) {
    std::size_t end = begin;
    while (end < points.size() && points[end].bytes() == points[begin].bytes()) ++end;
    for (int turn = 0; turn < turns; ++turn) {
      for (std::size_t p = begin; p < end; ++p) {
        const Point& point = points[p];
        progress.step(fmt::format("{} {} {}", described(point), name(point.contender), name(point.method)));
        const Result result = bench.run(point, samples * (turn + 1) / turns - samples * turn / turns);
        if (turn == 0) {
          results.push_back(result);
        } else {
          append(results[p], result);
        }
        if (result.verdict != Verdict::wrong) continue;
        progress.clear();
        fmt::print(stderr, "WRONG: {} of {}, {} {}, {}: {}\n", name(point.contender), described(point),
                   name(point.type), name(point.op), name(point.method), result.detail);
      }
    }
  }
  progress.clear();
  explain_rejections(ranks, results);
  return results;
}

std::vector<Method> methods_named(const Bench& bench, const std::string& text) {
  auto offered = bench.methods();
  if (text == "all") return offered;
  for (const auto method : offered)
    if (name(method) == text) return {method};
  std::string names = "all";
  for (const auto method : offered) names += fmt::format(", {}", name(method));
  throw Error(Errc::invalid_argument, fmt::format("--method {}: these ranks are timed by one of {}", text, names));
}

void add_launch(CLI::App& app, Launch& launch, const std::string& kernels, int most_threads) {
  app.add_option("--blocks", launch.blocks,
                 fmt::format("Blocks of {}, one more than a GPU's SMs at most, and 2 on CPU ranks (default: chosen by "
                             "size)",
                             kernels))
      ->check(CLI::Range(2, 1024));
  app.add_option("--threads", launch.threads, "Threads per block, a multiple of 32 (default: chosen by size)")
      ->check(CLI::Range(32, most_threads));
}

std::string print_tables(const BenchOptions& options, const std::vector<Method>& methods,
                         const std::function<Table(Method)>& table_of) {
  std::vector<Table> tables;
  for (const auto method : methods) {
    const Table table = table_of(method);
    if (options.tables_on_stdout()) fmt::print("\n{}\n{}", explain(method), table.text());
    tables.push_back(table.with("method", std::string(name(method))));
  }
  return Table::joined(tables).csv();
}

CLI::Option* add_method(CLI::App& app, std::string& text) {
  return app.add_option("--method", text, "How time is taken; batch on CPU ranks, the others on GPUs")
      ->check(CLI::IsMember({"all", "batch", "graph", "producer", "vllm"}))
      ->capture_default_str();
}

RunInfo run_info(const std::string& command, const std::vector<std::string>& arguments, const Ranks& ranks,
                 const BenchOptions& options, const std::vector<std::string>& notes) {
  return {.command = command,
          .arguments = arguments,
          .device = std::string(name(ranks.device())),
          .world_size = ranks.world_size(),
          .fabric = ranks.first().fabric(),
          .data = std::string(name(options.data)),
          .notes = notes};
}

std::string headline(const Ranks& ranks) {
  const auto& build = detail::build_info();
  return fmt::format("{} {} ranks ({}), weft {} at {}{}, {}", ranks.world_size(),
                     ranks.device() == Device::cuda ? "GPU" : "CPU", ranks.first().fabric(), build.version,
                     build.commit, build.dirty ? " with uncommitted changes" : "", build.build_type);
}

std::string microseconds(double us) {
  if (us < 10) return fmt::format("{:.2f}", us);
  return fmt::format("{:.1f}", us);
}

std::string cell(const Result* result) {
  if (result == nullptr || result->verdict == Verdict::unavailable) return "-";
  return result->verdict == Verdict::wrong ? "WRONG" : microseconds(result->us);
}

const Result* find(const std::vector<Result>& results, std::size_t bytes, Contender contender, Method method) {
  for (const auto& result : results)
    if (result.point.bytes() == bytes && result.point.contender == contender && result.point.method == method)
      return &result;
  return nullptr;
}

const Result* fastest(const std::vector<Result>& results, std::size_t bytes, Method method,
                      const std::function<bool(Contender)>& wanted) {
  const Result* best = nullptr;
  for (const auto& result : results) {
    if (result.point.bytes() != bytes || result.point.method != method || result.verdict != Verdict::ok) continue;
    if (result.point.contender == Contender::push) continue;
    if (wanted(result.point.contender) && (best == nullptr || result.us < best->us)) best = &result;
  }
  return best;
}

bool all_correct(const std::vector<Result>& results) {
  return std::none_of(results.begin(), results.end(), [](const Result& r) { return r.verdict == Verdict::wrong; });
}

}  // namespace weft::cli
