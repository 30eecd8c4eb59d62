// weft tune: measures the best algorithm and grid for each size of an operation on this machine, and writes the tables.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
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
#include "rendezvous/process_identity.hpp"
#include "tune/subject.hpp"
#include "tune/token_options.hpp"
#include "tuning/tuning.hpp"

namespace weft::cli {
namespace {

using Clock = std::chrono::steady_clock;

struct Tune {
  std::vector<std::string> arguments;
  BenchOptions options;
  std::string output = "tuning.json";
  std::string state;
  SubjectArgs subjects;
  TokenOptions by_tokens;
  double seconds = 170;

  nlohmann::json identity(Ranks& ranks, const TokenSearches& searches) const;
  std::vector<detail::TuningTable> found_tables() const;
  detail::TuningTable table_of(const Ranks& ranks, const TuneSubject& subject) const;
  detail::TuningTable base(const Ranks& ranks, const TuneSubject& subject) const;
  std::vector<detail::TuningStep> write(const Ranks& ranks, const TuneSubject& subject,
                                        const std::vector<TunedSize>& tuned) const;
  void print(const TuneSubject& subject, const std::vector<TunedSize>& tuned,
             std::span<const detail::TuningStep> steps) const;
  std::optional<detail::TuningTable> found_table(const detail::TuningTable& made) const;
  void check_steps_of(const TokenSearch& search) const;
  void finish(const TokenSearch& search) const;
  void check_ranks(const Ranks& ranks) const;
  int run();

 private:
  std::string note() const;
  void replace(detail::TuningTable table) const;
};

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

nlohmann::json Tune::identity(Ranks& ranks, const TokenSearches& searches) const {
  const auto& build = detail::build_info();
  nlohmann::json all = {{"machine", from_leader(ranks, detail::ProcessIdentity::current().host.data())},
                        {"processor", state_of(ranks).communicator().fabric().processor().name},
                        {"ranks", ranks.world_size()},
                        {"fabric", ranks.first().fabric()},
                        {"commit", build.commit},
                        {"dirty", build.dirty},
                        {"build_type", build.build_type}};
  for (const auto& search : searches)
    all[fmt::format("{}{}", name(search->table().operation), by(search->path()))] = search->size_json();
  return all;
}

std::string Tune::note() const {
  const auto& build = detail::build_info();
  return fmt::format("weft tune at {}{}, {}, {}", build.commit, build.dirty ? " with uncommitted changes" : "",
                     build.build_type, now());
}

std::vector<detail::TuningTable> Tune::found_tables() const {
  return std::filesystem::exists(output) ? detail::read_tuning(output) : std::vector<detail::TuningTable>{};
}

// The table that this one will replace.
std::optional<detail::TuningTable> Tune::found_table(const detail::TuningTable& made) const {
  for (detail::TuningTable& table : found_tables())
    if (table.serves_as(made)) return std::move(table);
  return {};
}

// Without its steps.
detail::TuningTable Tune::table_of(const Ranks& ranks, const TuneSubject& subject) const {
  return {.processor = state_of(ranks).communicator().fabric().processor(),
          .ranks = ranks.world_size(),
          .operation = subject.operation(),
          .origin = "measured",
          .note = note()};
}

// The choices for sizes that are not measured: the table that will be replaced, else the table in use.
detail::TuningTable Tune::base(const Ranks& ranks, const TuneSubject& subject) const {
  const auto found = found_table(table_of(ranks, subject));
  return found ? *found : subject.served_now(ranks);
}

// An existing file keeps its tables for other processors, numbers of ranks, operations and layers.
void Tune::replace(detail::TuningTable table) const {
  std::vector<detail::TuningTable> tables = found_tables();
  std::erase_if(tables, [&](const detail::TuningTable& other) { return other.serves_as(table); });
  tables.push_back(std::move(table));
  write_text(output, detail::to_json(tables));
}

std::vector<detail::TuningStep> Tune::write(const Ranks& ranks, const TuneSubject& subject,
                                            const std::vector<TunedSize>& tuned) const {
  const detail::TuningTable before = base(ranks, subject);
  detail::TuningTable table = table_of(ranks, subject);
  table.steps = subject.moves() ? move_steps_of(tuned, before.steps) : steps_of(tuned, before.steps);
  table.detour_bytes = before.detour_bytes;
  replace(table);
  return table.steps;
}

void Tune::check_steps_of(const TokenSearch& search) const {
  const auto found = found_table(search.table());
  search.check_steps(found ? &*found : nullptr);
}

void Tune::finish(const TokenSearch& search) const {
  const auto found = found_table(search.table());
  detail::TuningTable made = search.made(found ? &*found : nullptr);
  made.note = note() + search.remark();
  search.print(made);
  replace(std::move(made));
}

void Tune::print(const TuneSubject& subject, const std::vector<TunedSize>& tuned,
                 std::span<const detail::TuningStep> steps) const {
  Table table({"size", "algorithm", "blocks × threads", "µs", "before µs", "gain"});
  for (const TunedSize& size : tuned)
    table.add({format_bytes(size.bytes), std::string(name(size.algorithm)),
               size.launch.blocks != 0 ? fmt::format("{} × {}", size.launch.blocks, size.launch.threads) : "by size",
               cell(size.time), cell(size.before),
               size.as_before ? "as before" : fmt::format("{:.2f}", size.before.us / size.time.us)});
  fmt::print("\n{}\n{}\n", subject.title(), table.text());
  if (std::ranges::all_of(tuned, &TunedSize::as_before))
    fmt::print("No choice is faster than the present one for these sizes.\n");
  for (const TunedSize& size : tuned) {
    const detail::TunedAlgorithm way = detail::step_for(steps, size.bytes, size.bytes).algorithm;
    if (way == size.algorithm) continue;
    fmt::print("{} goes by {} all the same: no way comes back for larger messages.\n", format_bytes(size.bytes),
               name(way));
  }
}

void Tune::check_ranks(const Ranks& ranks) const {
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
}

// The search of one operation, as far as it has come.
struct Search {
  const TuneSubject& subject;
  std::unique_ptr<Bench> bench = nullptr;
  std::map<std::size_t, TunedSize> tuned = {};

  bool measured = false;

  std::vector<TunedSize> sizes() const {
    std::vector<TunedSize> all;
    for (const auto& [bytes, size] : tuned) all.push_back(size);
    return all;
  }
  // Sizes that are left keep the choices of `base`: otherwise those between two measured ones would lose theirs.
  std::vector<TunedSize> all_sizes(std::span<const detail::TuningStep> base) const {
    std::vector<TunedSize> all;
    for (const std::size_t size : subject.sizes()) {
      const detail::TuningStep& kept = detail::step_for(base, size, size);
      const auto found = tuned.find(size);
      all.push_back(found != tuned.end()
                        ? found->second
                        : TunedSize{.bytes = size, .algorithm = kept.algorithm, .launch = {kept.blocks, kept.threads}});
    }
    return all;
  }
  Result measure(Ranks& ranks, Progress& progress, const Trial& trial) {
    const std::string what = in_words(trial);
    progress.note(what);
    measured = true;
    if (bench == nullptr) bench = subject.open(ranks);
    Result result = subject.measure(ranks, *bench, trial);
    if (result.verdict == Verdict::unavailable && ranks.leader()) {
      progress.clear();
      fmt::print(stderr, "not measured: {}: {}\n", what, result.detail);
    }
    return result;
  }
  void tune(Ranks& ranks, Progress& progress, TuneState& known, std::size_t size) {
    TuneQuery query = subject.served_now(ranks, size);
    if (const auto larger = tuned.lower_bound(size); larger != tuned.begin())
      query.previous = &std::prev(larger)->second;
    tuned[size] = tune_size(query, subject.space(ranks, size), [&](Trial trial) {
      trial.operation = subject.operation();
      return known.time(trial, [&](const Trial& one) { return measure(ranks, progress, one); });
    });
  }
};

int Tune::run() {
  const auto begin = Clock::now();
  subjects.samples = options.samples;
  parse_tuned_bytes(subjects.bytes);  // reports bad sizes before anything is started
  const std::string file = state.empty() ? output + ".state" : state;
  by_tokens.check(subjects);           // likewise
  check_outputs({{"--state", file}});  // it keeps the measurements even if the table cannot be written
  static_cast<void>(found_tables());
  Ranks ranks(options.ranks_args());
  check_ranks(ranks);
  const std::vector<TuneSubject> all = TuneSubject::all(ranks, subjects);
  std::vector<Search> searches;
  std::size_t count = 0;
  for (const TuneSubject& subject : all) {
    searches.push_back({.subject = subject});
    count += subject.sizes().size();
    if (ranks.leader()) check_steps(subject.sizes(), base(ranks, subject).steps);
  }
  const TokenSearches token_searches = by_tokens.open(ranks, subjects);
  for (const auto& search : token_searches) {
    count += search->tokens().size();
    if (ranks.leader()) check_steps_of(*search);
  }
  std::stringstream found;
  if (ranks.leader()) found << std::ifstream(file).rdbuf();
  TuneState known({.file = file,
                   .identity = identity(ranks, token_searches),
                   .text = from_leader(ranks, found.str()),
                   .writes = ranks.leader()});
  Progress progress(count, ranks.leader());
  if (known.known() != 0 && ranks.leader())
    fmt::print(stderr, "weft tune: continues with {} measurements of {}\n", known.known(), file);
  const auto time_is_up = [&] {
    const bool up = seconds != 0 && std::chrono::duration<double>(Clock::now() - begin).count() > seconds;
    return !from_leader(ranks, up ? "up" : "").empty();
  };
  std::vector<std::string> left;
  // A run gets somewhere, however short its time.
  const auto goes_on = [&] {
    const bool measured = std::ranges::any_of(searches, &Search::measured) ||
                          std::ranges::any_of(token_searches, [](const auto& one) { return one->measured(); });
    return !measured || !time_is_up();
  };
  for (int stage = 0; stage < kTuneStages; ++stage) {
    for (Search& search : searches) {
      for (const std::size_t size : of_stage(search.subject.sizes(), stage)) {
        const std::string what = fmt::format("{} {}", name(search.subject.operation()), format_bytes(size));
        progress.step(what);
        if (goes_on()) {
          search.tune(ranks, progress, known, size);
        } else {
          left.push_back(what);
        }
      }
    }
    for (const auto& search : token_searches) {
      for (const std::uint32_t of_each : of_stage(search->tokens(), stage)) {
        const std::string what =
            fmt::format("{} of {} tokens{}", name(search->table().operation), of_each, by(search->path()));
        progress.step(what);
        if (goes_on()) {
          search->tune(progress, known, of_each);
        } else {
          left.push_back(what);
        }
      }
    }
  }
  progress.clear();
  if (!ranks.leader()) return 0;
  fmt::print("{}\nbefore: {}\n", headline(ranks), ranks.first().tuning());
  for (const Search& search : searches) {
    if (search.tuned.empty()) continue;
    const auto steps = write(ranks, search.subject, search.all_sizes(base(ranks, search.subject).steps));
    print(search.subject, search.sizes(), steps);
  }
  for (const auto& search : token_searches)
    if (search->has_tuned()) finish(*search);
  if (left.empty()) {
    known.remove();
  } else {
    fmt::print("Not measured, since the {} s of --seconds were over: {}.\nThe same command goes on with them ({}).\n",
               seconds, fmt::join(left, ", "), file);
  }
  fmt::print(
      "Written to {}. To use it: Config::tuning_file in a program, --tuning {} in weft bench, info and verify.\n",
      output, output);
  return 0;
}

}  // namespace

Command add_tune(CLI::App& app, const std::vector<std::string>& arguments) {
  const auto tune = std::make_shared<Tune>();
  tune->arguments = arguments;
  tune->options.samples = 7;
  app.add_option("--output", tune->output, "File of the tables; those for other GPUs or numbers of ranks stay")
      ->capture_default_str();
  app.add_option("--state", tune->state,
                 "File of measurements, to continue after an interruption (default: the "
                 "output's name with .state)");
  add_choice(app, "--operation", tune->subjects.operations,
             {TuneChoice::all, TuneChoice::all_reduce, TuneChoice::norm, TuneChoice::gather, TuneChoice::scatter,
              TuneChoice::crossing, TuneChoice::normed_crossing, TuneChoice::layer, TuneChoice::exchange},
             "The operation to tune (all: layers and exchanges of experts if a model is given)");
  tune->by_tokens.add_to(app);
  app.add_flag("--quick", tune->subjects.quick, "Every fourth size and fewer grids: half a minute");
  app.add_option("--seconds", tune->seconds, "Time after which no further size begins; 0: all sizes")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
  app.add_option("--bytes", tune->subjects.bytes,
                 "Sizes to measure, \"16K,1M\" (default: 4 KB to 256 MB on GPUs). All but all-reduces take multiples "
                 "of 8 KB");
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
