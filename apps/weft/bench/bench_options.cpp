#include "bench/bench_options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "base/build_info.hpp"
#include "bench/csv.hpp"
#include "bench/plot.hpp"
#include "common/options.hpp"
#include "common/progress.hpp"
#include "common/sizes.hpp"
#include "common/values.hpp"
#include "workloads/cores.hpp"

namespace weft::cli {

void BenchOptions::add_to(CLI::App& app) {
  app.add_option("--ranks", ranks, "Ranks, as threads of this process (default: every GPU, or 4 CPU ranks)")
      ->check(whole_number(1, 72));
  add_choice(app, "--device", device, {Device::automatic, Device::cpu, Device::cuda}, "Device of the ranks");
  app.add_option("--samples", samples, "Timed samples per point")->check(whole_number(1, 10000))->capture_default_str();
  app.add_option("--deadline", deadline, "Seconds that an operation may wait for a peer; 0: for ever")
      ->check(deadline_seconds())
      ->capture_default_str();
  app.add_flag("--small-buffers", small_buffers, "Buffers for engines with many communicators (Config::small_buffers)");
  app.add_option("--json", json, "Write everything, raw samples included, to this file (-: stdout)");
  app.add_option("--csv", csv, "Write the table to this file (-: stdout)");
  app.add_option("--plot", plot,
                 "Draw time and bandwidth over size, a line for each algorithm and peer: .png, .svg, .pdf");
}

void BenchOptions::add_data_to(CLI::App& app) {
  add_choice(app, "--data", data, {Data::integers, Data::random},
             "Inputs: integers with exact sums, of which peers must give the same bits; or random values of many "
             "magnitudes, of which Weft must still give the reference's bits, and peers stay within a bound");
}

void BenchOptions::write(const nlohmann::json& report) const {
  if (!json.empty()) write_text(json, report.dump(1) + "\n");
  if (!plot.empty()) cli::plot(report, plot);
}

void BenchOptions::write_results(const RunArgs& run, const Ranks& ranks, const std::vector<Result>& results) const {
  if (!csv.empty()) write_text(csv, to_csv({.ranks = ranks.world_size(), .crowd = run.crowd}, results));
  if (wants_report()) write(report(run_info(run, ranks, *this), describe_machine(), to_json(results, run.crowd)));
}

void BenchOptions::add_tuning_to(CLI::App& app) {
  app.add_option("--tuning", tuning, "Tables of weft tune to use instead of the built-in ones");
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
  args.config.small_buffers = small_buffers;
  args.config.deadline = std::chrono::nanoseconds(static_cast<std::int64_t>(deadline * 1e9));
  return args;
}

void BenchOptions::add_sharing_to(CLI::App& app) {
  app.add_flag(
      "--share-gpus", share_gpus,
      "If there are too few GPUs, let ranks share them, to compare kernels of two builds: no data crosses a link");
}

Ranks::Args BenchOptions::ranks_at_hand() const {
  if (share_gpus && (launched() || device == Device::cpu || usable_gpus() == 0))
    throw Error(Errc::invalid_argument, launched() ? "--share-gpus: a launcher has placed the ranks"
                                                   : "--share-gpus: the ranks would be CPU ranks");
  auto args = ranks_args();
  if (launched()) args.world_size = 0;
  if (!launched() && !share_gpus && device != Device::cpu && usable_gpus() > 0)
    args.world_size = std::min(args.world_size, usable_gpus());
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

// Prints each reason for a rejection once. Throws if Weft could measure no point of an operation, or no point with the
// launch that the options name.
void explain_rejections(const Ranks& ranks, const std::vector<Result>& results) {
  const auto has_launch = [](const Result& r) { return r.point.launch.blocks != 0 || r.point.launch.threads != 0; };
  const bool any_launch = std::ranges::any_of(results, has_launch);
  std::set<std::string> said;
  std::map<Operation, bool> measured;  // of the operations that the options name: whether Weft ran any point
  for (const Result& result : results) {
    if (is_weft(result.point.contender) && has_launch(result) == any_launch) {
      bool& any = measured[result.point.operation];
      any = any || result.verdict != Verdict::unavailable;
    }
    if (result.verdict != Verdict::unavailable || result.detail.empty()) continue;
    if (!said.insert(fmt::format("{}: {}", name(result.point.contender), result.detail)).second) continue;
    if (ranks.leader())
      fmt::print(stderr, "not measured: {} of {}: {}\n", name(result.point.contender), described(result.point),
                 result.detail);
  }
  for (const auto& [operation, any] : measured)
    if (!any)
      throw Error(Errc::invalid_argument,
                  fmt::format("no algorithm of Weft's could be measured for {}", name(operation)));
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
  throw Error(Errc::invalid_argument, fmt::format("--method {}: must be one of {} on these ranks", text, names));
}

void add_launch(CLI::App& app, Launch& launch, const std::string& kernels, int most_threads) {
  app.add_option("--blocks", launch.blocks,
                 fmt::format("Blocks of {}, one more than a GPU's SMs at most, and 2 on CPU ranks (default: chosen by "
                             "size)",
                             kernels))
      ->check(whole_number(2, kMostBlocks));
  add_threads(app, launch, most_threads);
}

void add_threads(CLI::App& app, Launch& launch, int most_threads) {
  app.add_option("--threads", launch.threads, "Threads per block, a multiple of 32 (default: chosen by size)")
      ->check(whole_number(32, most_threads));
}

void add_cluster(CLI::App& app, int& cluster) {
  app.add_option("--cluster", cluster,
                 "On GPUs, blocks of a cluster of Weft's kernels: 2 for GEMMs beside them that pair SMs, with even "
                 "numbers of blocks; 1: single blocks; 0: as Weft likes")
      ->check(whole_number(0, 2))
      ->capture_default_str();
}

void check_cluster(const std::string& option, std::int64_t blocks, int cluster) {
  if (cluster != 2 || blocks % 2 == 0) return;
  throw Error(Errc::invalid_argument, fmt::format("{}: {} is odd, and --cluster is 2", option, blocks));
}

void print_tables(const std::vector<Method>& methods, const std::function<Table(Method)>& table_of) {
  for (const auto method : methods) fmt::print("\n{}\n{}", explain(method), table_of(method).text());
}

CLI::Option* add_method(CLI::App& app, std::string& text) {
  return app.add_option("--method", text, "Method of timing; batch on CPU ranks, the others on GPUs")
      ->check(CLI::IsMember({"all", "batch", "graph", "producer", "vllm"}))
      ->capture_default_str();
}

RunInfo run_info(const RunArgs& run, const Ranks& ranks, const BenchOptions& options) {
  return {.command = run.command,
          .arguments = run.arguments,
          .device = std::string(name(ranks.device())),
          .world_size = ranks.world_size(),
          .fabric = ranks.first().fabric(),
          .data = std::string(name(options.data)),
          .crowd = run.crowd,
          .config = {{"deadline", options.deadline},
                     {"multicast", options.multicast},
                     {"small_buffers", options.small_buffers},
                     {"tuning_file", options.tuning}},
          .notes = run.notes};
}

std::string headline(const Ranks& ranks) {
  const auto& build = detail::build_info();
  const double cores = usable_cores();
  const std::string where =
      ranks.device() == Device::cuda
          ? fmt::format("{} GPU {} ({})", ranks.world_size(), ranks.world_size() == 1 ? "rank" : "ranks",
                        ranks.first().fabric())
          : fmt::format("{}, {:.3g} {}", ranks.first().fabric(), cores, cores == 1 ? "core" : "cores");
  return fmt::format("{}, weft {} at {}{}, {}", where, build.version, build.commit,
                     build.dirty ? " with uncommitted changes" : "", build.build_type);
}

std::string headline(const Ranks& ranks, const BenchOptions& options) {
  return headline(ranks) + (options.small_buffers ? ", small buffers" : "");
}

std::string microseconds(double us) {
  if (us < 10) return fmt::format("{:.2f}", us);
  return us < 1000 ? fmt::format("{:.1f}", us) : fmt::format("{:.0f}", us);
}

std::string cell(const Figure& figure) {
  if (figure.samples == 0) return "-";
  if (figure.samples == 1) return microseconds(figure.us);
  return fmt::format("{} ({}…{})", microseconds(figure.us), microseconds(figure.least), microseconds(figure.most));
}

std::string cell(const Result* result) {
  if (result == nullptr || result->verdict == Verdict::unavailable) return "-";
  if (result->verdict == Verdict::wrong) return "WRONG";
  Figure figure = figure_of(*result);
  figure.us = result->us;  // a peer may have been measured elsewhere, and its median computed by another rule
  return cell(figure);
}

std::vector<Contender> contenders_in(const std::vector<Result>& results, Method method) {
  std::vector<Contender> contenders;
  for (const auto& result : results)
    if (result.point.method == method && std::ranges::count(contenders, result.point.contender) == 0)
      contenders.push_back(result.point.contender);
  return contenders;
}

const Result* in_row(const std::vector<Result>& results, const Point& point, Contender contender) {
  for (const auto& result : results) {
    const Point& of = result.point;
    if (of.operation == point.operation && of.load == point.load && of.rows == point.rows &&
        of.method == point.method && of.contender == contender && (is_peer(contender) || of.padding == point.padding))
      return &result;
  }
  return nullptr;
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
    if (is_bound(result.point.contender)) continue;
    if (wanted(result.point.contender) && (best == nullptr || result.us < best->us)) best = &result;
  }
  return best;
}

Compared compared(const std::vector<Result>& results) {
  Compared sum;
  for (const Result& result : results) {
    if (result.verdict == Verdict::unavailable) continue;
    const bool empty = result.point.bytes() == 0 && result.point.operation != Operation::barrier;
    ++(result.verdict == Verdict::wrong ? sum.wrong : empty ? sum.empty : sum.right);
  }
  return sum;
}

Compared compared(const std::vector<MoeResult>& results) {
  Compared sum;
  for (const MoeResult& result : results) ++(result.wrong.empty() ? sum.right : sum.wrong);
  for (const MoeRival* rival : rivals_of(results)) {
    if (rival->result.verdict != Verdict::unavailable) ++(rival->result.verdict == Verdict::ok ? sum.right : sum.wrong);
  }
  return sum;
}

void add_rival_files(CLI::App& app, std::string& tokens_out, std::string& columns) {
  app.add_option("--tokens-out", tokens_out,
                 "Write every token's experts and weights to this file, from which bench/rivals.py has other libraries "
                 "move the same");
  app.add_option("--columns", columns,
                 "Columns from a file that bench/rivals.py wrote, of the same tokens on as many GPUs of the same name");
}

std::string gpu_of(const Ranks& ranks) {
  if (ranks.device() != Device::cuda) return {};
  const Machine machine = describe_machine();
  return machine.gpus.empty() ? std::string() : machine.gpus[0].name;
}

std::string verdict_line(const Compared& sum) {
  if (sum.wrong != 0) return "Results marked WRONG differ from the reference.";
  if (sum.right == 0)
    return fmt::format("Nothing was compared with a reference: {}.",
                       sum.empty != 0 ? "messages of 0 bytes have no result" : "nothing was measured");
  return sum.empty == 0 ? "Every result was compared with a reference and is right."
                        : "Every result except those of 0 bytes was compared with a reference and is right.";
}

bool all_correct(const std::vector<Result>& results) {
  return std::none_of(results.begin(), results.end(), [](const Result& r) { return r.verdict == Verdict::wrong; });
}

}  // namespace weft::cli
