#include "verify/verify_inspect.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <functional>
#include <memory>
#include <optional>

#include "bench/bench_options.hpp"
#include "bench/crossing_measure.hpp"
#include "bench/gather_measure.hpp"
#include "bench/moe_measure.hpp"
#include "bench/move_check.hpp"
#include "bench/norm_measure.hpp"
#include "bench/pair_measure.hpp"
#include "comm/state.hpp"
#include "common/progress.hpp"
#include "common/sizes.hpp"
#include "verify/verify_advice.hpp"
#include "verify/verify_points.hpp"

namespace weft::cli {
namespace {

constexpr std::size_t KiB = 1024, MiB = 1024 * KiB;

// The state of one run of the checks.
class Inspection {
 public:
  Inspection(const VerifyArgs& args, const Machine& machine) : args_(args), machine_(machine) {}

  void run();
  Findings take() { return std::move(found_); }

 private:
  using Steps = std::vector<std::pair<std::string, std::function<void()>>>;

  // Runs the steps until one ends with a fault, since the communicator has then ended.
  bool run_steps(const Steps& steps);
  void check_world(Ranks& ranks);
  // The checks of all ranks together.
  struct World {
    Ranks& ranks;
    std::unique_ptr<Bench> bench = {};  // of the running steps: only one bench has memory at a time
    Steps steps = {};
  };
  void add_norms(World& world);
  void add_gathers(World& world);
  void add_crossings(World& world);
  void add_point(World& world, const Point& point, const std::string& what);
  void add_moves(World& world);
  void add_exchanges(World& world);
  void check_pairs(Ranks& ranks);
  void add(const Result& result, std::string what, std::string who, std::vector<int> ranks, const char* advice);
  void add_world(const Result& result, std::string what);
  Verified verified(bool direct = true) const;
  std::size_t most() const;
  // Times of CPU ranks are shown, but not judged.
  int samples() const { return args_.thorough ? 9 : found_.device == Device::cpu ? 1 : 3; }
  // GB/s each way between the GPUs of two ranks; 0 if ranks share GPUs, or if the rate is unknown.
  double link_rate(int a, int b) const;

  const VerifyArgs& args_;
  const Machine& machine_;
  Findings found_;
};

double Inspection::link_rate(int a, int b) const {
  const auto gpus = machine_.gpus.size();
  if (found_.device != Device::cuda || static_cast<std::size_t>(found_.world) > gpus) return 0;
  return machine_.gpus[static_cast<std::size_t>(a)].links.rate_to(b);
}

std::size_t Inspection::most() const {
  if (args_.most_bytes != 0) return args_.most_bytes;
  if (found_.device == Device::cpu) return args_.thorough ? 16 * MiB : 2 * MiB;
  return args_.thorough ? 256 * MiB : 64 * MiB;
}

bool Inspection::run_steps(const Steps& steps) {
  Progress progress(steps.size(), found_.leader);
  for (const auto& [what, step] : steps) {
    progress.step(what);
    try {
      step();
    } catch (const std::exception& error) {
      const auto* own = dynamic_cast<const Error*>(&error);
      if (own != nullptr && own->code() == Errc::invalid_argument) throw;
      progress.clear();
      found_.checks.push_back({.what = what,
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
  found_.checks.push_back({.what = std::move(what),
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

// One row, and as many rows as two hops serve. Narrow rows, those of a large model, and rows so wide that a thread
// takes several packs. Every kind of scale, in the combinations that models have.
void Inspection::add_norms(World& world) {
  static constexpr std::pair<std::int64_t, std::int64_t> shapes[] = {{1, 1024}, {300, 1024}, {3, 7168}, {2, 16384}};
  struct Form {
    const char* name;
    NormForm norm;
  };
  const Form forms[] = {{"", {}},
                        {" fp8 fixed", {.fp8 = Fp8Scaling::fixed}},
                        {" fp8 per token", {.gamma_plus_one = true, .fp8 = Fp8Scaling::per_token}},
                        {" fp8 per 128 columns", {.fp8 = Fp8Scaling::per_128_columns}},
                        {" fp8 per 128 columns UE8M0",
                         {.residual = false, .fp8 = Fp8Scaling::per_128_columns, .scale_type = ScaleType::ue8m0}}};
  for (const Form& form : forms) {
    world.steps.emplace_back(fmt::format("memory for norms{}", form.name), [&world, norm = form.norm] {
      world.bench.reset();
      world.bench =
          open_norm_bench(world.ranks, {.data = Data::random, .max_bytes = 300 * 1024 * 2, .peers = false}, norm);
    });
    for (const auto type : {DataType::bf16, DataType::f16}) {
      for (const auto algorithm : {Contender::automatic, Contender::one_shot, Contender::two_shot}) {
        for (const auto& [rows, hidden] : shapes) {
          const Point point{.operation = Operation::all_reduce_rms_norm,
                            .count = static_cast<std::size_t>(rows * hidden),
                            .rows = rows,
                            .hidden = hidden,
                            .type = type,
                            .contender = algorithm,
                            .method = methods_of(found_.device).front()};
          if (point.bytes() > most()) continue;
          const std::string what =
              fmt::format("{} {} {}{}", name(point.operation), name(type), name(algorithm), form.name);
          world.steps.emplace_back(
              fmt::format("{} {}", what, format_bytes(point.bytes())),
              [&world, this, point, what] { add_world(world.bench->run(point, samples()), what); });
        }
      }
    }
  }
}

void Inspection::add_gathers(World& world) {
  const GatherModel rows{.layout = {.tp = found_.world, .dp = found_.world}, .hidden = 1024};
  const std::vector<Point> gathers = gather_points(verified(), rows);
  std::size_t bytes = 0;
  for (const Point& point : gathers) bytes = std::max(bytes, gather_bytes(rows, point));
  world.steps.emplace_back("memory for gathers", [&world, rows, bytes] {
    world.bench.reset();
    world.bench = open_gather_bench(world.ranks, {.data = Data::random, .max_bytes = bytes, .peers = false}, rows);
  });
  for (const Point& point : gathers) {
    const std::string what = fmt::format("{} {}{}", name(point.operation), name(point.load),
                                         point.contender == Contender::symmetric ? " into symmetric memory" : "");
    add_point(world, point, what);
  }
}

void Inspection::add_crossings(World& world) {
  const CrossingForm form{.layout = {.tp = found_.world}, .hidden = 1024};  // all ranks are one attention group
  const std::vector<Point> crossings = crossing_points(verified(), form);
  std::size_t bytes = 0;
  for (const Point& point : crossings) bytes = std::max(bytes, crossing_bytes(form, point));
  world.steps.emplace_back("memory for crossings", [&world, form, bytes] {
    world.bench.reset();
    world.bench = open_crossing_bench(world.ranks, {.data = Data::random, .max_bytes = bytes, .peers = false}, form);
  });
  for (const Point& point : crossings) add_point(world, point, std::string(name(point.operation)));
}

void Inspection::add_point(World& world, const Point& point, const std::string& what) {
  world.steps.emplace_back(fmt::format("{} {}", what, format_bytes(point.bytes())),
                           [&world, this, point, what] { add_world(world.bench->run(point, samples()), what); });
}

Verified Inspection::verified(bool direct) const {
  return {.device = found_.device,
          .most = most(),
          .direct = direct,
          .multicast = args_.ranks.config.multicast,
          .thorough = args_.thorough};
}

void Inspection::add_moves(World& world) {
  for (const MoveCheck& check : move_checks(found_.world)) {
    if (check.bytes > most()) continue;
    world.steps.emplace_back(fmt::format("{} {}", check.what, format_bytes(check.bytes)),
                             [&world, this, check] { add_world(check.run(world.ranks), check.what); });
  }
  world.steps.emplace_back("barrier", [&world, this] { add_world(check_barrier(world.ranks), "barrier"); });
}

void Inspection::add_exchanges(World& world) {
  for (const auto cast : {RowCast::none, RowCast::fp8}) {
    const std::string what = fmt::format("dispatch and combine {}", cast == RowCast::none ? "bf16" : "fp8");
    world.steps.emplace_back(what, [&world, this, what, cast] {
      world.bench.reset();
      const ModelShape shape{.name = "a small one", .hidden = 512, .num_experts = 4 * found_.world, .top_k = 4};
      const std::uint32_t tokens = found_.device == Device::cuda ? 128 : 8;
      const MoeExchangeArgs args{.tokens = tokens,
                                 .hidden = static_cast<std::uint32_t>(shape.hidden),
                                 .experts = static_cast<std::uint32_t>(shape.num_experts),
                                 .top_k = static_cast<std::uint32_t>(shape.top_k),
                                 .cast = cast};
      MoeMeasurement measurement(world.ranks, args);
      const MoeTraffic traffic(shape, args, Traffic::zipf, found_.world, tokens);
      const MoeResult result = measurement.run({.traffic = traffic, .samples = samples()}).front();
      found_.checks.push_back({.what = what,
                               .who = "all ranks",
                               .passed = result.wrong.empty(),
                               .expected = "the reference's rows",
                               .got = result.wrong,
                               .advice = kWrongResult});
    });
  }
}

void Inspection::check_world(Ranks& ranks) {
  const bool direct = ranks.first().world().state().direct();
  if (found_.device == Device::cuda)
    found_.checks.push_back({.what = "peer memory",
                             .who = "all ranks",
                             .passed = direct,
                             .expected = "every rank reaches every other rank's memory",
                             .got = found_.fabric,
                             .advice = kNoPeerMemory});
  const auto all = sum_points(verified(direct));
  std::size_t largest = 0;
  for (const Point& point : all) largest = std::max(largest, point.bytes());
  World world{.ranks = ranks};
  world.steps.emplace_back("memory for all-reduces", [&] {
    world.bench =
        open_bench(ranks, {.data = direct ? Data::random : Data::integers, .max_bytes = largest, .peers = false});
  });
  for (const Point& point : all) {
    const std::string what =
        fmt::format("all_reduce {} {} {}", name(point.op), name(point.type), name(point.contender));
    world.steps.emplace_back(fmt::format("{} {}", what, format_bytes(point.bytes())), [&, what] {
      const Result result = world.bench->run(point, samples());
      add_world(result, what);
      found_.all_reduces.push_back(result);
    });
  }
  if (direct) {
    add_norms(world);
    add_gathers(world);
    add_crossings(world);
    add_moves(world);
    add_exchanges(world);
  }
  if (!run_steps(world.steps)) return;

  const double slowest = slowest_link(found_.world, [this](int a, int b) { return link_rate(a, b); });
  const Result* large = find(found_.all_reduces, largest, Contender::automatic, methods_of(found_.device).front());
  if (slowest > 0 && largest >= kLeastJudgedBytes && large != nullptr && large->verdict == Verdict::ok)
    found_.checks.push_back(judge_world(found_.world, largest, large->us, slowest));
}

void Inspection::check_pairs(Ranks& ranks) {
  const std::size_t large = std::min(most(), found_.device == Device::cuda ? 16 * MiB : MiB);
  std::unique_ptr<PairBench> bench;
  Steps steps;
  steps.emplace_back("a group for every pair", [&] { bench = open_pair_bench(ranks, large); });
  const auto reduced_by = [&, this](int a, int b) {
    const std::string who = fmt::format("ranks {} ↔ {}", a, b);
    const Result small = bench->all_reduce(a, b, kLatencyBytes / 2, 2 * samples() + 1);
    const Result wide = bench->all_reduce(a, b, large / 2, samples());
    add(small, "all_reduce sum bf16", who, {a, b}, kWrongPair);
    add(wide, "all_reduce sum bf16", who, {a, b}, kWrongPair);
    PairFigure pair = figure_of_pair(small, wide);
    pair.a = a;
    pair.b = b;
    pair.link_rate = std::min(link_rate(a, b), link_rate(b, a));
    return pair;
  };
  for (int a = 0; a < found_.world; ++a) {
    for (int b = a + 1; b < found_.world; ++b) {
      const auto copy = [&, this](int from, int to) {
        const std::string who = fmt::format("ranks {} → {}", from, to);
        for (const std::size_t bytes : {std::size_t{16}, 64 * KiB + 4, large})
          steps.emplace_back(fmt::format("copy {}, {}", who, format_bytes(bytes)), [&, this, who, from, to, bytes] {
            if (bytes <= large) add(bench->copy(from, to, bytes / 4, 1), "copy", who, {from, to}, kWrongPair);
          });
      };
      copy(a, b);
      copy(b, a);
      steps.emplace_back(fmt::format("all_reduce ranks {} ↔ {}", a, b),
                         [&, this, a, b] { found_.pairs.push_back(reduced_by(a, b)); });
    }
  }
  if (!run_steps(steps)) return;
  // Another program may disturb a measurement. Links that are slow are slow each time: so look twice more.
  for (int turn = 0; turn < 2; ++turn) {
    Steps again;
    for (const Check& check : judge_pairs(found_.pairs)) {
      const std::string name = fmt::format("all_reduce {}, once more", check.who);
      if (check.passed || (!again.empty() && again.back().first == name)) continue;
      const auto pair = std::ranges::find_if(found_.pairs, [&](auto& p) {
        return std::vector{p.a, p.b} == check.ranks;
      });
      again.emplace_back(name, [&, pair] { *pair = best_of(*pair, reduced_by(pair->a, pair->b)); });
    }
    if (!run_steps(again)) return;
  }
  for (Check& check : judge_pairs(found_.pairs)) found_.checks.push_back(std::move(check));
}

void Inspection::run() {
  const Seats seats{
      .device = args_.ranks.device, .ranks = launched() ? 0 : args_.ranks.world_size, .gpus = usable_gpus()};
  found_.checks = judge_machine(machine_, seats);
  found_.left_out = why_not_all_gpus(machine_, seats);
  Ranks::Args args = args_.ranks;
  args.config.max_groups = pair_rounds(Ranks::count(args));
  if (args.device != Device::cpu && seats.gpus > 0) args.config.group_two_shot_bytes = 16 * MiB;
  const auto open = [&]() -> std::unique_ptr<Ranks> {
    try {
      auto ranks = std::make_unique<Ranks>(args);
      found_.leader = ranks->leader();
      found_.world = ranks->world_size();
      found_.device = ranks->device();
      found_.headline = headline(*ranks);
      found_.fabric = ranks->first().fabric();
      return ranks;
    } catch (const Error& error) {
      if (error.code() == Errc::invalid_argument) throw;
      found_.checks.push_back({.what = "connecting the ranks",
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
  if (found_.world == 1 || !ranks->first().world().state().direct()) return;
  // After a fault the pairs are checked with a new communicator, which helps to find the cause. Ranks of a launched job
  // cannot meet again once some have gone.
  if (ended && launched()) return;
  if (ended) {
    ranks.reset();
    ranks = open();
  }
  if (ranks != nullptr) check_pairs(*ranks);
}

}  // namespace

Findings inspect(const VerifyArgs& args, const Machine& machine) {
  const int world = Ranks::count(args.ranks);
  if (world > kMostVerifiedRanks)
    throw Error(Errc::invalid_argument, fmt::format("--ranks {}: must be between 1 and {}", world, kMostVerifiedRanks));
  Inspection inspection(args, machine);
  inspection.run();
  return inspection.take();
}

}  // namespace weft::cli
