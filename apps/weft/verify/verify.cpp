// weft verify: checks whether a machine is fit to serve: every pair of ranks, algorithm, size class and type.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>

#include "bench/bench_options.hpp"
#include "bench/rank_device.hpp"
#include "common/commands.hpp"
#include "common/options.hpp"
#include "common/sizes.hpp"
#include "common/values.hpp"
#include "verify/verify_inspect.hpp"
#include "weft/error.hpp"

namespace weft::cli {
namespace {

struct Verify {
  std::vector<std::string> arguments;
  BenchOptions options;
  std::string most_bytes;
  bool thorough = false;

  std::size_t most() const;
  nlohmann::json report(const Findings& found, const Machine& machine, double seconds) const;
  int run() const;
};

std::size_t Verify::most() const {
  if (most_bytes.empty()) return 0;
  const std::size_t bytes = parse_bytes(most_bytes);
  if (bytes < kLatencyBytes)
    throw Error(Errc::invalid_argument,
                fmt::format("--most-bytes {}: must be {} or more, the message whose latency is judged", most_bytes,
                            format_bytes(kLatencyBytes)));
  return bytes;
}

// GB/s, with the rates of the slowest and the fastest sample.
std::string rate_cell(const PairFigure& pair) {
  if (pair.large.samples < 2) return fmt::format("{:.1f}", pair.gb_per_s);
  return fmt::format("{:.1f} ({:.1f}…{:.1f})", pair.gb_per_s, gb_per_s(pair.bandwidth_bytes, pair.large.most),
                     gb_per_s(pair.bandwidth_bytes, pair.large.least));
}

void print(const Findings& found, double seconds) {
  if (!found.headline.empty()) fmt::print("{}\n", found.headline);
  if (!found.pairs.empty()) {
    Table table({"pair", "µs", "GB/s", "links GB/s"});
    for (const PairFigure& pair : found.pairs)
      table.add({fmt::format("{} ↔ {}", pair.a, pair.b), cell(pair.small), rate_cell(pair),
                 pair.link_rate > 0 ? fmt::format("{:.0f}", pair.link_rate) : "-"});
    fmt::print("\nPairs: all-reduce of {}, µs; of {}, GB/s each way\n{}", format_bytes(found.pairs[0].latency_bytes),
               format_bytes(found.pairs[0].bandwidth_bytes), table.text());
  }
  std::vector<Contender> columns;
  std::vector<std::size_t> sizes;
  for (const Result& result : found.all_reduces) {
    const Point& point = result.point;
    if (point.type != DataType::bf16 || point.op != ReduceOp::sum) continue;
    if (std::ranges::find(columns, point.contender) == columns.end()) columns.push_back(point.contender);
    if (sizes.empty() || sizes.back() != point.bytes()) sizes.push_back(point.bytes());
  }
  if (!sizes.empty()) {
    std::vector<std::string> heads = {"size"};
    for (const auto column : columns) heads.emplace_back(name(column));
    Table table(heads);
    for (const auto bytes : sizes) {
      std::vector<std::string> cells = {format_bytes(bytes)};
      for (const auto column : columns)
        cells.push_back(cell(find(found.all_reduces, bytes, column, methods_of(found.device)[0])));
      table.add(cells);
    }
    fmt::print("\nAll ranks: all-reduce sum of bf16, µs\n{}", table.text());
  }
  const std::string unjudged = found.not_judged();
  if (!unjudged.empty()) fmt::print("\n{}.\n", unjudged);

  const auto failed = std::ranges::count_if(found.checks, [](const Check& check) { return !check.passed; });
  if (failed == 0) {
    fmt::print("\nPASS: {} checks in {:.0f} s\n", found.checks.size(), seconds);
    return;
  }
  fmt::print("\nFAIL: {} of {} checks\n", failed, found.checks.size());
  constexpr int kMost = 20;
  int shown = 0;
  std::string_view advised;
  for (const Check& check : found.checks) {
    if (check.passed || shown++ >= kMost) continue;
    fmt::print("{:3}. {}, {}{}: expected {}, got {}\n", shown, check.who, check.what,
               check.bytes != 0 ? fmt::format(", {}", format_bytes(check.bytes)) : "", check.expected, check.got);
    if (check.advice != advised) fmt::print("     → {}\n", check.advice);
    advised = check.advice;
  }
  if (shown > kMost) fmt::print("     … and {} more; --json has them all\n", shown - kMost);
}

nlohmann::json Verify::report(const Findings& found, const Machine& machine, double seconds) const {
  nlohmann::json checks = nlohmann::json::array(), pairs = nlohmann::json::array();
  for (const Check& check : found.checks) checks.push_back(to_json(check));
  for (const PairFigure& pair : found.pairs)
    pairs.push_back({{"ranks", {pair.a, pair.b}},
                     {"us", pair.us},
                     {"us_min", pair.small.least},
                     {"us_max", pair.small.most},
                     {"gb_per_s", pair.gb_per_s},
                     {"gb_per_s_min", gb_per_s(pair.bandwidth_bytes, pair.large.most)},
                     {"gb_per_s_max", gb_per_s(pair.bandwidth_bytes, pair.large.least)},
                     {"links_gb_per_s", pair.link_rate}});
  return {{"schema", "weft-verify-1"},
          {"arguments", arguments},
          {"date", now()},
          {"build", build_json()},
          {"machine", to_json(machine)},
          {"device", name(found.device)},
          {"world_size", found.world},
          {"fabric", found.fabric},
          {"seconds", seconds},
          {"verdict", found.passed() ? "PASS" : "FAIL"},
          {"not_judged", found.not_judged()},
          {"checks", checks},
          {"pairs", pairs},
          {"all_reduces", to_json(found.all_reduces)}};
}

int Verify::run() const {
  const auto begin = std::chrono::steady_clock::now();
  const Machine machine = describe_machine();
  const Findings found = inspect({.ranks = options.ranks_args(), .thorough = thorough, .most_bytes = most()}, machine);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (found.leader) {
    if (options.tables_on_stdout()) print(found, seconds);
    if (!options.json.empty()) write_text(options.json, report(found, machine, seconds).dump(1) + "\n");
  }
  return found.passed() ? 0 : 1;
}

}  // namespace

Command add_verify(CLI::App& app, const std::vector<std::string>& arguments) {
  const auto verify = std::make_shared<Verify>();
  verify->arguments = arguments;
  app.add_option("--ranks", verify->options.ranks, "Ranks, as threads of this process (default: every GPU, or 4)")
      ->check(whole_number(1, kMostVerifiedRanks));
  add_choice(app, "--device", verify->options.device, {Device::automatic, Device::cpu, Device::cuda},
             "Device of the ranks");
  app.add_flag("--thorough", verify->thorough, "Larger messages, maxima of all sizes, more samples: some minutes");
  app.add_option("--most-bytes", verify->most_bytes, "Largest message, 8K or more, \"1M\" (default: 64 MB on GPUs)");
  app.add_option("--deadline", verify->options.deadline, "Seconds that an operation may wait for a peer; 0: for ever")
      ->check(deadline_seconds())
      ->capture_default_str();
  app.add_flag("--multicast", verify->options.multicast,
               "Ask for NVLink multicast (Config::multicast), and check the multimem algorithms as well");
  verify->options.add_tuning_to(app);
  app.add_option("--json", verify->options.json, "Write every check and figure to this file (-: stdout)");
  return [verify] { return verify->run(); };
}

}  // namespace weft::cli
