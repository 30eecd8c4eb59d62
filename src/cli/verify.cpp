// weft verify: is this machine fit to serve? Every pair of ranks, every algorithm, every size class and type.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>

#include "bench_options.hpp"
#include "comm/state.hpp"
#include "commands.hpp"
#include "gather_measure.hpp"
#include "moe_measure.hpp"
#include "options.hpp"
#include "pair_measure.hpp"
#include "progress.hpp"
#include "sizes.hpp"
#include "verify_checks.hpp"

namespace weft::cli {
namespace {

constexpr std::size_t KiB = 1024, MiB = 1024 * KiB;
constexpr int kMostRanks = 64;  // whose pairs a communicator has splits for
constexpr std::size_t kLatencyBytes = 8 * KiB;

constexpr const char* kWrongPair =
    "Data between these two is lost or changed: look for NVLink errors (nvidia-smi nvlink --errorcounters), Xid "
    "messages (dmesg), ECC errors (nvidia-smi -q -d ECC) and, without NVLink, IOMMU or ACS settings. Do not serve "
    "from this machine.";
constexpr const char* kWrongResult =
    "If a pair fails, too, look there first. If all pairs are right, this is a bug of Weft's: please report it with "
    "the file that --json writes.";
constexpr const char* kFault =
    "A rank did not answer: look for other programs on its processor or GPU (nvidia-smi), for Xid messages (dmesg), "
    "and whether --deadline leaves enough time; then run this again.";
constexpr const char* kNoCommunicator =
    "Nothing was measured: the ranks could not be connected. `weft info` shows what this machine offers, "
    "WEFT_LOG=debug how far it came.";
constexpr const char* kNoPeerMemory =
    "Weft's own algorithms need GPUs that store into each other's memory: NVLink, or PCIe peer access, with NCCL's "
    "symmetric memory (NCCL_CUMEM_ENABLE and NCCL_P2P_DISABLE unset). nvidia-smi topo -p2p w shows what there is.";

struct Verify {
  std::vector<std::string> arguments;
  BenchOptions options;
  std::string most_bytes;
  bool thorough = false;

  int run() const;
};

// One run of the checks, as it goes.
class Inspection {
 public:
  Inspection(const Verify& verify, const Machine& machine) : verify_(verify), machine_(machine) {}

  void run(const Ranks::Args& args);
  bool passed() const {
    return std::ranges::all_of(checks_, [](const Check& check) { return check.passed; });
  }
  void print(double seconds) const;
  nlohmann::json report(double seconds) const;
  bool leader() const { return leader_; }

 private:
  using Step = std::function<void()>;

  // Runs the steps until one ends with a fault: whatever comes after would meet a communicator that has ended.
  bool run_steps(const std::vector<std::pair<std::string, Step>>& steps);
  void check_world(Ranks& ranks);
  void check_pairs(Ranks& ranks);
  void add(const Result& result, std::string what, std::string who, std::vector<int> ranks, const char* advice);
  void add_world(const Result& result, std::string what);
  std::vector<Point> points(Device device, bool direct) const;
  std::size_t most(Device device) const;
  int samples() const { return verify_.thorough ? 9 : 3; }
  // GB/s each way between the GPUs of two ranks; 0 where ranks have none of their own, or it is not known.
  double link_rate(int a, int b) const;

  const Verify& verify_;
  const Machine& machine_;
  bool leader_ = true;
  std::string headline_, fabric_;
  int world_ = 0;
  Device device_ = Device::cpu;
  std::vector<Check> checks_;
  std::vector<PairFigure> pairs_;
  std::vector<Result> all_reduces_;
};

double Inspection::link_rate(int a, int b) const {
  const auto gpus = machine_.gpus.size();
  if (device_ != Device::cuda || static_cast<std::size_t>(world_) > gpus) return 0;
  return machine_.gpus[static_cast<std::size_t>(a)].links.rate_to(b);
}

std::size_t Inspection::most(Device device) const {
  if (!verify_.most_bytes.empty()) return std::max<std::size_t>(parse_bytes(verify_.most_bytes), kLatencyBytes);
  if (device == Device::cpu) return verify_.thorough ? 16 * MiB : 2 * MiB;
  return verify_.thorough ? 256 * MiB : 64 * MiB;
}

// Sizes on both sides of every threshold; odd ones, which take other instances. Maxima share all but the addition with
// sums.
std::vector<Point> Inspection::points(Device device, bool direct) const {
  std::vector<std::size_t> sizes = {8, 1000 * 8 + 24, 64 * KiB, 512 * KiB, 2 * MiB, 16 * MiB, 64 * MiB, 256 * MiB};
  std::erase_if(sizes, [&](std::size_t bytes) { return bytes > most(device); });
  std::vector<Contender> algorithms = {Contender::automatic};
  if (direct) algorithms.insert(algorithms.end(), {Contender::one_shot, Contender::two_shot, Contender::bulk});
  std::vector<Point> all;
  for (const auto type : {DataType::bf16, DataType::f16, DataType::f32, DataType::i32}) {
    for (const auto op : {ReduceOp::sum, ReduceOp::max}) {
      for (const auto bytes : sizes) {
        if (op == ReduceOp::max && bytes > MiB && !verify_.thorough) continue;
        for (const auto algorithm : algorithms)
          all.push_back({.count = bytes / size_of(type) - (bytes % 16 == 8 && bytes > 8 ? 1 : 0),
                         .type = type,
                         .op = op,
                         .contender = algorithm,
                         .method = methods_of(device).front()});
      }
    }
  }
  std::ranges::stable_sort(all, {}, [](const Point& point) { return point.bytes(); });
  return all;
}

bool Inspection::run_steps(const std::vector<std::pair<std::string, Step>>& steps) {
  Progress progress(steps.size(), leader_);
  for (const auto& [what, step] : steps) {
    progress.step(what);
    try {
      step();
    } catch (const std::exception& error) {
      progress.clear();
      checks_.push_back({.what = what,
                         .who = "all ranks",
                         .passed = false,
                         .expected = "every rank answers",
                         .got = error.what(),
                         .advice = kFault});
      return false;
    }
  }
  return true;
}

void Inspection::add(const Result& result, std::string what, std::string who, std::vector<int> ranks,
                     const char* advice) {
  checks_.push_back({.what = std::move(what),
                     .who = std::move(who),
                     .ranks = std::move(ranks),
                     .bytes = result.point.bytes(),
                     .passed = result.verdict == Verdict::ok,
                     .expected = "the reference's bits",
                     .got = result.detail.empty() ? "other bits, in another process" : result.detail,
                     .advice = advice});
}

void Inspection::add_world(const Result& result, std::string what) {
  const auto& wrong = result.wrong_ranks;
  add(result, std::move(what), wrong.empty() ? "all ranks" : fmt::format("ranks {}", fmt::join(wrong, ", ")), wrong,
      kWrongResult);
}

void Inspection::check_world(Ranks& ranks) {
  const bool direct = ranks.first().world().state().direct();
  if (device_ == Device::cuda)
    checks_.push_back({.what = "peer memory",
                       .who = "all ranks",
                       .passed = direct,
                       .expected = "every rank reaches every other rank's memory",
                       .got = fabric_,
                       .advice = kNoPeerMemory});
  const auto all = points(device_, direct);
  std::size_t largest = 0;
  for (const Point& point : all) largest = std::max(largest, point.bytes());
  const GatherModel rows{.layout = {.tp = world_, .dp = world_}, .hidden = 1024};
  std::vector<Point> gathers;
  for (const auto operation : {Operation::all_gather, Operation::reduce_scatter, Operation::all_gather_v,
                               Operation::reduce_scatter_v, Operation::four_tensors}) {
    for (const std::int64_t tokens : {1, 33, 2048}) {
      const bool ragged = operation > Operation::reduce_scatter;
      const Point point = gather_point(rows, operation, ragged ? Load::busy : Load::balanced, tokens, DataType::bf16);
      if (gather_bytes(rows, point) > most(device_)) continue;
      gathers.push_back(point);
      gathers.back().method = methods_of(device_).front();
    }
  }

  std::unique_ptr<Bench> sums, moves;
  std::vector<std::pair<std::string, Step>> steps;
  steps.emplace_back("memory for all-reduces", [&] {
    sums = open_bench(ranks, {.data = direct ? Data::random : Data::integers, .max_bytes = largest, .peers = false});
  });
  for (const Point& point : all) {
    const std::string what =
        fmt::format("all_reduce {} {} {}", name(point.op), name(point.type), name(point.contender));
    steps.emplace_back(fmt::format("{} {}", what, format_bytes(point.bytes())), [&, what] {
      const Result result = sums->run(point, samples());
      add_world(result, what);
      all_reduces_.push_back(result);
    });
  }
  if (direct) {
    steps.emplace_back("memory for gathers", [&] {
      sums.reset();
      std::size_t bytes = 0;
      for (const Point& point : gathers) bytes = std::max(bytes, gather_bytes(rows, point));
      moves = open_gather_bench(ranks, {.data = Data::random, .max_bytes = bytes, .peers = false}, rows);
    });
    for (const Point& point : gathers) {
      const std::string what = fmt::format("{} {}", name(point.operation), name(point.load));
      steps.emplace_back(fmt::format("{} {}", what, format_bytes(point.bytes())),
                         [&, what] { add_world(moves->run(point, samples()), what); });
    }
    for (const auto cast : {RowCast::none, RowCast::fp8}) {
      const std::string what = fmt::format("dispatch and combine {}", cast == RowCast::none ? "bf16" : "fp8");
      steps.emplace_back(what, [&, what, cast] {
        moves.reset();
        const ModelShape shape{.name = "a small one", .hidden = 512, .num_experts = 4 * world_, .top_k = 4};
        const std::uint32_t tokens = device_ == Device::cuda ? 128 : 8;
        const ExchangeArgs args{.tokens = tokens,
                                .hidden = static_cast<std::uint32_t>(shape.hidden),
                                .experts = static_cast<std::uint32_t>(shape.num_experts),
                                .top_k = static_cast<std::uint32_t>(shape.top_k),
                                .cast = cast};
        MoeMeasurement measurement(ranks, args);
        const MoeResult result =
            measurement.run(MoeTraffic(shape, args, Traffic::zipf, world_, tokens), tokens, samples(), {});
        checks_.push_back({.what = what,
                           .who = "all ranks",
                           .passed = result.wrong.empty(),
                           .expected = "the reference's rows",
                           .got = result.wrong,
                           .advice = kWrongResult});
      });
    }
  }
  if (!run_steps(steps)) return;

  double slowest_link = 0;
  for (int a = 0; a < world_; ++a)
    for (int b = 0; b < world_; ++b)
      if (a != b && (slowest_link == 0 || link_rate(a, b) < slowest_link)) slowest_link = link_rate(a, b);
  const Result* large = find(all_reduces_, largest, Contender::automatic, methods_of(device_).front());
  if (slowest_link > 0 && largest >= 16 * MiB && large != nullptr && large->verdict == Verdict::ok)
    checks_.push_back(judge_world(world_, largest, large->us, slowest_link));
}

void Inspection::check_pairs(Ranks& ranks) {
  const std::size_t large = std::min(most(device_), device_ == Device::cuda ? 16 * MiB : MiB);
  std::unique_ptr<PairBench> bench;
  std::vector<std::pair<std::string, Step>> steps;
  steps.emplace_back("a group for every pair", [&] { bench = open_pair_bench(ranks, large); });
  for (int a = 0; a < world_; ++a) {
    for (int b = a + 1; b < world_; ++b) {
      const auto copy = [&, this](int from, int to) {
        const std::string who = fmt::format("ranks {} → {}", from, to);
        for (const std::size_t bytes : {std::size_t{16}, 64 * KiB + 4, large})
          steps.emplace_back(fmt::format("copy {}, {}", who, format_bytes(bytes)), [&, this, who, from, to, bytes] {
            if (bytes <= large) add(bench->copy(from, to, bytes / 4, 1), "copy", who, {from, to}, kWrongPair);
          });
      };
      copy(a, b);
      copy(b, a);
      const std::string who = fmt::format("ranks {} ↔ {}", a, b);
      steps.emplace_back(fmt::format("all_reduce {}", who), [&, this, who, a, b] {
        const Result small = bench->all_reduce(a, b, kLatencyBytes / 2, 2 * samples() + 1);
        const Result wide = bench->all_reduce(a, b, large / 2, samples());
        add(small, "all_reduce sum bf16", who, {a, b}, kWrongPair);
        add(wide, "all_reduce sum bf16", who, {a, b}, kWrongPair);
        pairs_.push_back({.a = a,
                          .b = b,
                          .latency_bytes = kLatencyBytes,
                          .bandwidth_bytes = large,
                          .us = small.us,
                          .gb_per_s = gb_per_s(large, wide.us),
                          .link_rate = std::min(link_rate(a, b), link_rate(b, a))});
      });
    }
  }
  if (!run_steps(steps) || large < 16 * MiB) return;
  for (Check& check : judge_pairs(pairs_)) checks_.push_back(std::move(check));
}

void Inspection::run(const Ranks::Args& args) {
  if (args.device != Device::cpu) checks_ = judge_links(machine_);
  const auto open = [&]() -> std::unique_ptr<Ranks> {
    try {
      auto ranks = std::make_unique<Ranks>(args);
      leader_ = ranks->leader();
      world_ = ranks->world_size();
      device_ = ranks->device();
      headline_ = headline(*ranks);
      fabric_ = ranks->first().fabric();
      return ranks;
    } catch (const Error& error) {
      if (error.code() == Errc::invalid_argument) throw;
      checks_.push_back({.what = "connecting the ranks",
                         .who = "all ranks",
                         .passed = false,
                         .expected = "a communicator",
                         .got = error.what(),
                         .advice = kNoCommunicator});
      return nullptr;
    }
  };
  auto ranks = open();
  if (ranks == nullptr) return;
  check_world(*ranks);
  const bool ended = ranks->first().status().has_value();
  if (world_ == 1 || !ranks->first().world().state().direct()) return;
  // After a fault the pairs are looked at with a new communicator, which says more about the cause. Ranks of a launched
  // job cannot meet again once some have gone.
  if (ended && launched()) return;
  if (ended) {
    ranks.reset();
    ranks = open();
  }
  if (ranks != nullptr) check_pairs(*ranks);
}

void Inspection::print(double seconds) const {
  if (!headline_.empty()) fmt::print("{}\n", headline_);
  if (!pairs_.empty()) {
    Table table({"pair", "µs", "GB/s", "links GB/s"});
    for (const PairFigure& pair : pairs_)
      table.add({fmt::format("{} ↔ {}", pair.a, pair.b), microseconds(pair.us), fmt::format("{:.1f}", pair.gb_per_s),
                 pair.link_rate > 0 ? fmt::format("{:.0f}", pair.link_rate) : "-"});
    fmt::print("\nPairs: all-reduce of {}, µs; of {}, GB/s each way\n{}", format_bytes(pairs_[0].latency_bytes),
               format_bytes(pairs_[0].bandwidth_bytes), table.text());
  }
  std::vector<Contender> columns;
  std::vector<std::size_t> sizes;
  for (const Result& result : all_reduces_) {
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
        cells.push_back(cell(find(all_reduces_, bytes, column, methods_of(device_)[0])));
      table.add(cells);
    }
    fmt::print("\nAll ranks: all-reduce sum of bf16, µs\n{}", table.text());
  }
  const bool judged = std::ranges::any_of(pairs_, [](const PairFigure& pair) { return pair.link_rate > 0; });
  if (!judged) fmt::print("\nTimes are shown and not judged: what these ranks' links should give is not known.\n");

  const auto failed = std::ranges::count_if(checks_, [](const Check& check) { return !check.passed; });
  if (failed == 0) {
    fmt::print("\nPASS: {} checks in {:.0f} s\n", checks_.size(), seconds);
    return;
  }
  fmt::print("\nFAIL: {} of {} checks\n", failed, checks_.size());
  constexpr int kMost = 20;
  int shown = 0;
  std::string_view advised;
  for (const Check& check : checks_) {
    if (check.passed || shown++ >= kMost) continue;
    fmt::print("{:3}. {}, {}{}: expected {}, got {}\n", shown, check.who, check.what,
               check.bytes != 0 ? fmt::format(", {}", format_bytes(check.bytes)) : "", check.expected, check.got);
    if (check.advice != advised) fmt::print("     → {}\n", check.advice);
    advised = check.advice;
  }
  if (shown > kMost) fmt::print("     … and {} more; --json has them all\n", shown - kMost);
}

nlohmann::json Inspection::report(double seconds) const {
  nlohmann::json checks = nlohmann::json::array(), pairs = nlohmann::json::array();
  for (const Check& check : checks_) checks.push_back(to_json(check));
  for (const PairFigure& pair : pairs_)
    pairs.push_back({{"ranks", {pair.a, pair.b}},
                     {"us", pair.us},
                     {"gb_per_s", pair.gb_per_s},
                     {"links_gb_per_s", pair.link_rate}});
  return {{"schema", "weft-verify-1"},
          {"arguments", verify_.arguments},
          {"date", now()},
          {"build", build_json()},
          {"machine", to_json(machine_)},
          {"device", name(device_)},
          {"world_size", world_},
          {"fabric", fabric_},
          {"seconds", seconds},
          {"verdict", passed() ? "PASS" : "FAIL"},
          {"checks", checks},
          {"pairs", pairs},
          {"all_reduces", to_json(all_reduces_)}};
}

int Verify::run() const {
  if (!most_bytes.empty()) parse_bytes(most_bytes);
  const auto begin = std::chrono::steady_clock::now();
  auto args = options.ranks_args();
  const int world = Ranks::count(args);
  if (world > kMostRanks)
    throw Error(Errc::invalid_argument, fmt::format("--ranks {}: must be between 1 and {}", world, kMostRanks));
  args.config.max_groups = pair_rounds(world);
  if (args.device != Device::cpu && usable_gpus() > 0) args.config.group_two_shot_bytes = 16 * MiB;
  const Machine machine = describe_machine();
  Inspection inspection(*this, machine);
  inspection.run(args);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (inspection.leader()) {
    if (options.tables_on_stdout()) inspection.print(seconds);
    if (!options.json.empty()) write_text(options.json, inspection.report(seconds).dump(1) + "\n");
  }
  return inspection.passed() ? 0 : 1;
}

}  // namespace

Command add_verify(CLI::App& app, const std::vector<std::string>& arguments) {
  const auto verify = std::make_shared<Verify>();
  verify->arguments = arguments;
  app.add_option("--ranks", verify->options.ranks, "Ranks, as threads of this process (default: every GPU, or 4)")
      ->check(CLI::Range(1, kMostRanks));
  add_choice(app, "--device", verify->options.device, {Device::automatic, Device::cpu, Device::cuda},
             "Where the ranks live");
  app.add_flag("--thorough", verify->thorough, "Larger messages, maxima of all sizes, more samples: some minutes");
  app.add_option("--most-bytes", verify->most_bytes, "Largest message, \"1M\" (default: 64 MB on GPUs)");
  app.add_option("--deadline", verify->options.deadline, "Seconds that an operation may wait for a peer; 0: for ever")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
  app.add_option("--json", verify->options.json, "Write every check and figure to this file (-: stdout)");
  return [verify] { return verify->run(); };
}

}  // namespace weft::cli
