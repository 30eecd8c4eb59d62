// weft tune: measures the best algorithm and grid for each size of all-reduce on this machine, and writes the table.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>

#include "base/build_info.hpp"
#include "bench/bench_options.hpp"
#include "comm/state.hpp"
#include "common/commands.hpp"
#include "common/options.hpp"
#include "common/progress.hpp"
#include "common/sizes.hpp"
#include "common/values.hpp"
#include "kernel/most_threads.hpp"
#include "ops/all_reduce/all_reduce_plan.hpp"
#include "rendezvous/process_identity.hpp"
#include "tune/tuner.hpp"
#include "tuning/tuning.hpp"

namespace weft::cli {
namespace {

struct Tune {
  std::vector<std::string> arguments;
  BenchOptions options;
  std::string output = "tuning.json";
  std::string state;
  std::string bytes;
  bool quick = false;

  std::vector<std::size_t> sizes(Device device) const;
  TuneSpace space(const Ranks& ranks) const;
  nlohmann::json identity(Ranks& ranks, DataType type) const;
  std::vector<detail::TuningTable> found_tables() const;
  std::vector<detail::TuningStep> base(const Ranks& ranks) const;
  void write(const Ranks& ranks, const std::vector<TunedSize>& tuned) const;
  void print(const Ranks& ranks, const std::vector<TunedSize>& tuned) const;
  int run() const;
};

const detail::GroupState& state_of(const Ranks& ranks) {
  return ranks.first().world().state();
}

DataType tuned_type(Device device) {
  return device == Device::cpu ? DataType::f32 : DataType::bf16;
}

// Powers of two, and a size in the middle of two of them if the choice changes in between.
std::vector<std::size_t> Tune::sizes(Device device) const {
  std::vector<std::size_t> all;
  if (!bytes.empty()) {
    for (const auto size : parse_bytes_list(bytes)) {
      if (size < 16 || size % 16 != 0)
        throw Error(Errc::invalid_argument, fmt::format("--bytes {}: must be a multiple of 16, and not 0", size));
      all.push_back(size);
    }
    std::ranges::sort(all);
    all.erase(std::unique(all.begin(), all.end()), all.end());
    return all;
  }
  const bool cpu = device == Device::cpu;
  const std::size_t most = std::size_t{1} << (cpu ? 22 : quick ? 26 : 28);
  for (std::size_t size = cpu ? 256 : 4096; size <= most; size *= quick ? 4 : 2) {
    all.push_back(size);
    if (!quick && size > 65536 && size < most) all.push_back(size + size / 2);
  }
  return all;
}

detail::PlanQuery plan_query(const Ranks& ranks, std::size_t count, std::span<const detail::TuningStep> steps) {
  const auto& group = state_of(ranks);
  return {.device = ranks.device(),
          .size = static_cast<std::uint32_t>(ranks.world_size()),
          .layout = group.layout(),
          .type = tuned_type(ranks.device()),
          .op = ReduceOp::sum,
          .count = count,
          .max_blocks = group.communicator().max_blocks(),
          .least_max_blocks = group.communicator().least_max_blocks(),
          .steps = steps};
}

// The choice of the table in use for a size.
TuneQuery served_now(const Ranks& ranks, std::size_t bytes) {
  const auto& steps = state_of(ranks).tuning().table->steps;
  TuneQuery query{.bytes = bytes};
  query.algorithm =
      detail::plan_all_reduce(plan_query(ranks, bytes / size_of(tuned_type(ranks.device())), steps)).algorithm;
  const detail::TuningStep& step = detail::step_for(steps, bytes, bytes);  // the wire widens neither type
  if (step.algorithm == query.algorithm) query.launch = {.blocks = step.blocks, .threads = step.threads};
  return query;
}

// Pipelined is only searched if a table may choose it (ops/all_reduce/all_reduce_plan.cpp).
TuneSpace Tune::space(const Ranks& ranks) const {
  const auto& group = state_of(ranks);
  TuneSpace space{.algorithms = {Algorithm::one_shot, Algorithm::two_shot}, .blocks = {}, .threads = {}};
  space.samples = options.samples;
  const detail::TuningStep pipelined[] = {{.algorithm = Algorithm::pipelined}};
  if (detail::plan_all_reduce(plan_query(ranks, 1, pipelined)).algorithm == Algorithm::pipelined)
    space.algorithms.push_back(Algorithm::pipelined);
  if (ranks.device() == Device::cpu) return space;           // their grid never changes
  const int most = group.communicator().least_max_blocks();  // all ranks must search in the same way
  for (const int blocks : quick ? std::vector<int>{17, 65, most} : std::vector<int>{9, 17, 33, 49, 65, 97, most})
    if (blocks <= most && (space.blocks.empty() || blocks > space.blocks.back())) space.blocks.push_back(blocks);
  // A number that every specialized instance for so many ranks can take.
  const int most_threads = detail::max_threads(static_cast<std::uint32_t>(ranks.world_size()));
  for (const int threads : quick ? std::vector<int>{128, 512, 1024} : std::vector<int>{64, 128, 256, 512, 1024})
    if (threads <= most_threads) space.threads.push_back(threads);
  return space;
}

// The leader's text on every rank of a launched job, since all ranks must search in the same way.
std::string from_leader(Ranks& ranks, std::string text) {
  if (ranks.local_size() == ranks.world_size()) return text;
  ranks.each([&](Ranks::Seat& seat) {
    auto size = static_cast<std::uint64_t>(text.size());
    seat.broadcast(std::as_writable_bytes(std::span(&size, 1)));
    text.resize(size);
    if (size != 0) seat.broadcast(std::as_writable_bytes(std::span(text)));
  });
  return text;
}

nlohmann::json Tune::identity(Ranks& ranks, DataType type) const {
  const auto& build = detail::build_info();
  return {{"machine", from_leader(ranks, detail::ProcessIdentity::current().host.data())},
          {"processor", state_of(ranks).communicator().fabric().processor()},
          {"ranks", ranks.world_size()},
          {"fabric", ranks.first().fabric()},
          {"type", name(type)},
          {"commit", build.commit},
          {"dirty", build.dirty}};
}

std::vector<detail::TuningTable> Tune::found_tables() const {
  return std::filesystem::exists(output) ? detail::read_tuning(output) : std::vector<detail::TuningTable>{};
}

// The choices for sizes that are not measured: the table that will be replaced, else the table in use.
std::vector<detail::TuningStep> Tune::base(const Ranks& ranks) const {
  const auto& group = state_of(ranks);
  for (const detail::TuningTable& table : found_tables())
    if (table.processor == group.communicator().fabric().processor() && table.ranks == ranks.world_size())
      return table.steps;
  return group.tuning().table->steps;
}

// An existing file keeps its tables for other processors and numbers of ranks.
void Tune::write(const Ranks& ranks, const std::vector<TunedSize>& tuned) const {
  const auto& build = detail::build_info();
  detail::TuningTable table{
      .processor = state_of(ranks).communicator().fabric().processor(),
      .ranks = ranks.world_size(),
      .origin = "measured",
      .note = fmt::format("weft tune at {}{}, {}", build.commit, build.dirty ? " with uncommitted changes" : "", now()),
      .steps = steps_of(tuned, base(ranks))};
  std::vector<detail::TuningTable> tables = found_tables();
  std::erase_if(tables, [&](const detail::TuningTable& other) {
    return other.processor == table.processor && other.ranks == table.ranks;
  });
  tables.push_back(std::move(table));
  write_text(output, detail::to_json(tables));
}

void Tune::print(const Ranks& ranks, const std::vector<TunedSize>& tuned) const {
  Table table({"size", "algorithm", "blocks × threads", "µs", "before µs", "gain"});
  for (const TunedSize& size : tuned)
    table.add({format_bytes(size.bytes), std::string(name(size.algorithm)),
               size.launch.blocks != 0 ? fmt::format("{} × {}", size.launch.blocks, size.launch.threads) : "by size",
               cell(size.time), cell(size.before),
               size.as_before ? "as before" : fmt::format("{:.2f}", size.before.us / size.time.us)});
  fmt::print("{}\nbefore: {}\n\n{}\n", headline(ranks), ranks.first().tuning(), table.text());
  if (std::ranges::all_of(tuned, &TunedSize::as_before))
    fmt::print("No choice is faster than the present one for these sizes.\n");
  fmt::print(
      "Written to {}. To use it: Config::tuning_file in a program, --tuning {} in weft bench, info and verify.\n",
      output, output);
}

int Tune::run() const {
  sizes(Device::cpu);  // reports bad sizes before anything is started
  const std::string file = state.empty() ? output + ".state" : state;
  check_outputs({{"--state", file}});  // it keeps the measurements even if the table cannot be written
  static_cast<void>(found_tables());
  Ranks ranks(options.ranks_args());
  if (ranks.world_size() == 1)
    throw Error(Errc::invalid_argument, "--ranks: there is one rank, and 2 to 72 can be tuned");
  if (ranks.device() == Device::cuda && !launched() && ranks.local_size() > usable_gpus())
    throw Error(Errc::invalid_argument,
                fmt::format("--ranks {}: must be {} or fewer, the number of usable GPUs: times of ranks that share "
                            "a GPU hold on no machine with a GPU for each rank",
                            ranks.local_size(), usable_gpus()));
  if (!state_of(ranks).direct())
    throw Error(Errc::unsupported, fmt::format("these ranks do not reach each other's memory ({}): NCCL serves them",
                                               ranks.first().fabric()));
  const DataType type = tuned_type(ranks.device());
  const auto all = sizes(ranks.device());
  const TuneSpace space = this->space(ranks);
  if (ranks.leader()) check_steps(all, base(ranks));
  std::stringstream found;
  if (ranks.leader()) found << std::ifstream(file).rdbuf();
  TuneState known({.file = file,
                   .identity = identity(ranks, type),
                   .text = from_leader(ranks, found.str()),
                   .writes = ranks.leader()});
  const auto bench = open_bench(ranks, {.data = Data::integers, .max_bytes = all.back(), .peers = false});

  Progress progress(all.size(), ranks.leader());
  if (known.known() != 0 && ranks.leader())
    fmt::print(stderr, "weft tune: continues with {} measurements of {}\n", known.known(), file);
  const auto measure = [&](const Trial& trial) {
    const std::string what = fmt::format("{} {} {} × {}", format_bytes(trial.bytes), name(trial.algorithm),
                                         trial.launch.blocks, trial.launch.threads);
    progress.note(what);
    constexpr Contender contenders[] = {Contender::automatic, Contender::one_shot, Contender::two_shot,
                                        Contender::pipelined};
    Result result = bench->run({.count = trial.bytes / size_of(type),
                                .type = type,
                                .contender = contenders[static_cast<int>(trial.algorithm)],
                                .method = bench->methods().front(),
                                .launch = trial.launch},
                               trial.samples);
    if (result.verdict == Verdict::unavailable && ranks.leader()) {
      progress.clear();
      fmt::print(stderr, "not measured: {}: {}\n", what, result.detail);
    }
    return result;
  };
  std::vector<TunedSize> tuned;
  for (const auto size : all) {
    progress.step(format_bytes(size));
    TuneQuery query = served_now(ranks, size);
    if (!tuned.empty()) query.previous = &tuned.back();
    tuned.push_back(tune_size(query, space, [&](const Trial& trial) { return known.time(trial, measure); }));
  }
  progress.clear();
  if (!ranks.leader()) return 0;
  write(ranks, tuned);
  known.remove();
  print(ranks, tuned);
  return 0;
}

}  // namespace

Command add_tune(CLI::App& app, const std::vector<std::string>& arguments) {
  const auto tune = std::make_shared<Tune>();
  tune->arguments = arguments;
  tune->options.samples = 7;
  app.add_option("--output", tune->output, "File of the table; tables for other GPUs or numbers of ranks stay")
      ->capture_default_str();
  app.add_option("--state", tune->state,
                 "File of measurements, to continue after an interruption (default: the "
                 "output's name with .state)");
  app.add_flag("--quick", tune->quick, "Every fourth size and grid: half a minute");
  app.add_option("--bytes", tune->bytes, "Sizes to measure, \"16K,1M\" (default: 4 KB to 256 MB on GPUs)");
  app.add_option("--ranks", tune->options.ranks, "Ranks, as threads of this process (default: every GPU, or 4)")
      ->check(whole_number(2, 72));
  add_choice(app, "--device", tune->options.device, {Device::automatic, Device::cpu, Device::cuda},
             "Device of the ranks");
  app.add_option("--samples", tune->options.samples,
                 "Timed samples per grid; three times as many decide, in seven turns")
      ->check(whole_number(1, 1000))
      ->capture_default_str();
  app.add_option("--deadline", tune->options.deadline, "Seconds that an operation may wait for a peer; 0: for ever")
      ->check(deadline_seconds())
      ->capture_default_str();
  return [tune] { return tune->run(); };
}

}  // namespace weft::cli
