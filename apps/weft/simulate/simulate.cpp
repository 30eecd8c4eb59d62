// weft simulate: runs the production templates under schedules that the simulator or the user chooses.
#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "bench/report.hpp"
#include "common/commands.hpp"
#include "common/options.hpp"
#include "common/progress.hpp"
#include "common/values.hpp"
#include "sim/explore.hpp"
#include "sim/fault_setups.hpp"
#include "weft/error.hpp"

namespace weft::cli {
namespace {

using sim::AllReduceProgram;
using sim::ExploreArgs;
using sim::Report;
using sim::Strategy;

struct Options {
  std::vector<std::string> protocols;
  std::vector<std::string> arguments;
  Strategy strategy = Strategy::random;
  std::string json;
  std::optional<std::string> replay;  // an empty text is the ordinary schedule
  std::optional<std::int64_t> executions;
  std::int64_t seed = 1, stop = 0;
  std::optional<unsigned> bound;
  bool list = false, faults = false;

  bool stories_on_stdout() const { return json != "-"; }
};

void list_protocols(const std::vector<sim::Setup>& setups) {
  for (const sim::Setup& s : setups) {
    fmt::print("{:<34} {} {}, {} ranks, {} {}, units of {} bytes{}\n", s.name, name(s.algorithm), name(s.type), s.ranks,
               s.calls.size(), s.calls.size() == 1 ? "call" : "calls", s.atomic_bytes,
               s.small ? fmt::format("; exhaustive within {}", s.bound) : "");
  }
}

void print(const std::string& protocol, const ExploreArgs& args, const Report& report, double seconds) {
  if (!report.unused.empty()) {
    fmt::print("{}: the execution never reached {}, so that choice changed nothing\n", protocol,
               to_string(report.unused));
  }
  if (report.failure) {
    fmt::print("{}", story(protocol, args, report));
  } else if (report.unused.empty()) {
    std::string extent;
    if (args.strategy == Strategy::exhaustive)
      extent = report.complete ? fmt::format(", all within {}", args.bound)
                               : fmt::format(", NOT ALL within {} (--executions {})", args.bound, args.executions);
    const bool ended = args.strategy == Strategy::exhaustive && !report.complete;
    fmt::print("{:<34} {:>9} executions, {:>10} steps, {:.1f} s{}: {}\n", protocol, report.executions, report.steps,
               seconds, extent, ended ? "right so far" : "all right");
  }
}

nlohmann::json to_json(const std::string& protocol, const ExploreArgs& args, const Report& report, double seconds) {
  return {{"protocol", protocol},
          {"scheduler", sim::name(args.strategy)},
          {"seed", args.seed},
          {"bound", args.bound},
          {"executions", report.executions},
          {"steps", report.steps},
          {"complete", report.complete},
          {"seconds", seconds},
          {"failure", report.failure ? std::string(sim::name(report.failure.kind)) : ""},
          {"what", report.failure.what},
          {"schedule", to_string(report.schedule)},
          {"stop", report.stop},
          {"unused", to_string(report.unused)}};
}

int simulate(const Options& options) {
  const std::vector<sim::Setup>& setups = options.faults ? sim::all_fault_setups() : sim::all_setups();
  if (options.list) {
    list_protocols(setups);
    return 0;
  }
  std::vector<std::string> protocols = options.protocols;
  if (protocols.empty()) {
    for (const sim::Setup& setup : setups) protocols.push_back(setup.name);
  }
  check_outputs({{"--json", options.json}});
  const Strategy strategy = options.replay ? Strategy::replay : options.strategy;
  const auto schedule = sim::parse_schedule(options.replay.value_or(""));
  Progress progress(protocols.size(), true);
  bool all_right = true;
  int left_out = 0;
  auto results = nlohmann::json::array();
  for (const std::string& protocol : protocols) {
    const sim::Setup& setup = sim::find_setup(protocol);
    if (strategy == Strategy::exhaustive && !setup.small && options.protocols.empty()) {
      ++left_out;
      continue;
    }
    AllReduceProgram program(setup);
    const unsigned usual = strategy == Strategy::exhaustive ? setup.bound : 4;
    const unsigned bound = options.bound.value_or(usual);
    std::uint64_t executions = setup.faults.stopping_rank >= 0 ? 8 : 10'000;
    if (strategy == Strategy::exhaustive) executions = sim::kAllExecutions;
    if (options.executions) executions = static_cast<std::uint64_t>(*options.executions);
    progress.step(protocol);
    const ExploreArgs args{
        .strategy = strategy,
        .seed = static_cast<std::uint64_t>(options.seed),
        .executions = executions,
        .bound = bound,
        .progress = [&](std::uint64_t done) { progress.note(fmt::format("{}, {} executions", protocol, done)); }};
    const auto start = std::chrono::steady_clock::now();
    const Report report =
        options.replay ? replay(program, schedule, static_cast<std::uint64_t>(options.stop)) : explore(program, args);
    progress.clear();
    if (options.replay && !report.failure && options.stories_on_stdout()) {
      for (const std::string& line : report.trace) fmt::print("{}\n", line);
    }
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (options.stories_on_stdout()) print(protocol, args, report, seconds);
    results.push_back(to_json(protocol, args, report, seconds));
    all_right = all_right && !report.failure && report.unused.empty();
  }
  if (left_out != 0)
    fmt::print(stderr,
               "{} set-ups have too many schedules for an exhaustive search and were left out (--protocol runs any)\n",
               left_out);
  if (!options.json.empty()) {
    const nlohmann::json report = {
        {"schema", "weft-simulate-1"}, {"arguments", options.arguments},         {"date", now()},
        {"build", build_json()},       {"machine", to_json(describe_machine())}, {"results", results}};
    write_text(options.json, report.dump(1) + "\n");
  }
  return all_right ? 0 : 1;
}

}  // namespace

Command add_simulate(CLI::App& app, const std::vector<std::string>& arguments) {
  const auto options = std::make_shared<Options>();
  options->arguments = arguments;
  auto* const list = app.add_flag("--list", options->list, "list the protocol set-ups, one per line");
  app.add_flag("--faults", options->faults, "only the set-ups with a fault on purpose");
  app.add_option("--protocol", options->protocols, "set-ups to run (default: all)");
  constexpr std::int64_t most = std::int64_t{1} << 40;
  add_choice(app, "--scheduler", options->strategy, {Strategy::random, Strategy::pct, Strategy::exhaustive},
             "choice of schedules");
  app.add_option("--seed", options->seed, "seed of random and pct; it determines all schedules")
      ->check(whole_number(0, most))
      ->capture_default_str();
  app.add_option(
         "--executions", options->executions,
         "most executions per set-up (default: 10000; exhaustive: all); if a rank stops, for each step at which "
         "it can (8)")
      ->check(whole_number(1, most));
  app.add_option("--bound", options->bound,
                 "exhaustive: most choices that differ from the ordinary schedule (default: the set-up's, see --list); "
                 "pct: change points (default: 4)")
      ->check(whole_number(0, 64));
  auto* const replay = app.add_option_function<std::string>(
      "--replay", [options](const std::string& schedule) { options->replay = schedule; },
      "run one execution with this schedule and print its steps");
  app.add_option("--stop", options->stop, "with --replay: the step at which the set-up's rank stops")
      ->check(whole_number(0, most))
      ->needs(replay);
  app.add_option("--json", options->json, "Write results to this file (-: stdout)")->excludes(list);
  return [options] { return simulate(*options); };
}

}  // namespace weft::cli
