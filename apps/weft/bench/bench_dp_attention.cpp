// weft bench dp-attention: tokens that cross between data-parallel attention and layers that all ranks share.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "bench/bench_options.hpp"
#include "bench/crossing_measure.hpp"
#include "bench/crossing_tables.hpp"
#include "bench/csv.hpp"
#include "bench/logits_measure.hpp"
#include "bench/logits_tables.hpp"
#include "common/commands.hpp"
#include "common/options.hpp"
#include "common/sizes.hpp"
#include "common/tuning_note.hpp"
#include "common/values.hpp"
#include "models/model_choice.hpp"
#include "weft/moe.hpp"
#include "workloads/gather_shape.hpp"

namespace weft::cli {
namespace {

constexpr std::string_view kLogits = "logits";
constexpr Operation kCrossings[] = {Operation::gather_sums, Operation::scatter_sums};

struct DpAttentionBench {
  std::vector<std::string> arguments;
  BenchOptions options;
  ModelChoice model{"deepseek-v3"};
  std::int64_t hidden = 0, vocabulary = 0;
  int dp = 0;
  std::string tokens;
  std::vector<std::string> what;  // empty: both crossings and logits
  std::vector<std::string> loads;
  std::vector<Padding> paddings = {Padding::none, Padding::max};
  std::string norm = "none";
  std::string methods = "all";
  Launch launch = {};

  std::vector<std::int64_t> counts(Device device) const;
  ParallelLayout layout(int world) const;
  void add_points(std::vector<Point>& all, const Bench& bench, const CrossingForm& form, Point point) const;
  std::vector<Point> points(const Bench& bench, const CrossingForm& form, Device device) const;
  bool wants(std::string_view operation) const { return what.empty() || std::ranges::count(what, operation) != 0; }
  bool wants(Load load, int groups) const;
  struct Measured {
    CrossingForm crossing;
    LogitsForm logits;
    std::vector<Result> crossings, of_logits;
    std::vector<std::string> notes;
    std::vector<Method> methods;
  };
  void measure_crossings(Ranks& ranks, Measured& measured) const;
  void measure_logits(Ranks& ranks, Measured& measured) const;
  void print(const Ranks& ranks, const Measured& measured, const Crowd& crowd) const;
  void write(const Ranks& ranks, const Measured& measured) const;
  void check_norm(const CrossingForm& form) const;
  int run() const;
};

std::vector<std::int64_t> DpAttentionBench::counts(Device device) const {
  const char* usual = device == Device::cpu ? "1,8,64" : "1,8,64,128,512";
  return parse_counts(tokens.empty() ? usual : tokens, "--tokens", kMostRows);
}

ParallelLayout DpAttentionBench::layout(int world) const {
  const int tp = options.ranks != 0 ? options.ranks : world;
  const ParallelLayout layout{.tp = tp, .dp = dp != 0 ? dp : 1};
  layout.check();
  if (tp < world) throw Error(Errc::invalid_argument, fmt::format("--tp {}: the launcher started {} ranks", tp, world));
  return layout;
}

bool DpAttentionBench::wants(Load load, int groups) const {
  if (load == Load::busy && groups == 1) return false;  // no other group can be idle
  return loads.empty() || std::ranges::count(loads, name(load)) != 0;
}

// Adds every contender's: Weft's for each padding that makes slots of its own, and each peer's once.
void DpAttentionBench::add_points(std::vector<Point>& all, const Bench& bench, const CrossingForm& form,
                                  Point point) const {
  std::vector<std::vector<RowRange>> slots;
  for (const Padding padding : paddings) {
    point.contender = Contender::automatic;
    point.padding = padding;
    const CrossingShape shape = crossing_shape(form, point);
    if (std::ranges::find(slots, shape.all.slots) != slots.end()) continue;
    slots.push_back(shape.all.slots);
    for (const auto contender : bench.contenders(point.operation)) {
      if (is_peer(contender) && slots.size() != 1) continue;
      // Nobody groups operations of as many rows on every rank.
      const bool grouped = contender == Contender::nccl_grouped;
      if (grouped && shape.is_even()) continue;
      Point one = point;
      one.contender = contender;
      one.launch = is_peer(contender) ? Launch{} : launch;
      if (is_peer(contender)) one.padding = grouped ? Padding::none : Padding::max;
      for (const auto method : methods_named(bench, methods)) {
        one.method = method;
        all.push_back(one);
      }
    }
  }
}

std::vector<Point> DpAttentionBench::points(const Bench& bench, const CrossingForm& form, Device device) const {
  std::vector<Point> all;
  for (const auto operation : kCrossings) {
    if (!wants(name(operation))) continue;
    for (const auto load : {Load::balanced, Load::busy}) {
      if (!wants(load, form.layout.dp)) continue;
      for (const auto count : counts(device)) {
        Point point{.operation = operation, .load = load, .rows = count, .hidden = form.hidden, .type = options.type};
        std::size_t tokens_of_all = 0;
        for (int group = 0; group < form.layout.dp; ++group) tokens_of_all += form.tokens(point, group);
        point.count = tokens_of_all * static_cast<std::size_t>(form.hidden);
        add_points(all, bench, form, point);
      }
    }
  }
  // Groups that only these need leave a call on all ranks fewer of a GPU's blocks.
  std::stable_partition(all.begin(), all.end(),
                        [](const Point& point) { return point.contender != Contender::separate; });
  return all;
}

void DpAttentionBench::measure_crossings(Ranks& ranks, Measured& measured) const {
  const CrossingForm& form = measured.crossing;
  std::size_t largest = 0;
  for (const auto count : counts(ranks.device()))
    for (const auto padding : paddings)
      largest = std::max(largest, crossing_bytes(form, {.rows = count, .type = options.type, .padding = padding}));
  const auto bench = open_crossing_bench(ranks, options.bench_args(largest), form);
  for (const auto& note : bench->notes())
    if (std::ranges::count(measured.notes, note) == 0) measured.notes.push_back(note);
  measured.methods = methods_named(*bench, methods);
  measured.crossings = run_points(ranks, *bench, points(*bench, form, ranks.device()), options.samples);
}

void DpAttentionBench::measure_logits(Ranks& ranks, Measured& measured) const {
  const LogitsForm& form = measured.logits;
  std::size_t largest = 0;
  for (const auto count : counts(ranks.device()))
    largest = std::max(largest, logits_bytes(form, {.rows = count, .type = options.type}, ranks.world_size()));
  const auto bench = open_logits_bench(ranks, options.bench_args(largest), form);
  measured.notes = bench->notes();
  measured.methods = methods_named(*bench, methods);
  std::vector<Point> all;
  for (const auto load : {Load::balanced, Load::busy}) {
    if (!wants(load, static_cast<int>(form.groups))) continue;
    for (const auto count : counts(ranks.device())) {
      Point point{.operation = Operation::all_gather_columns,
                  .load = load,
                  .count = static_cast<std::size_t>(count * form.vocabulary),
                  .rows = count,
                  .hidden = form.vocabulary,
                  .type = options.type};
      for (const auto contender : bench->contenders(point.operation)) {
        point.contender = contender;
        point.launch = is_peer(contender) ? Launch{} : launch;
        for (const auto method : measured.methods) {
          point.method = method;
          all.push_back(point);
        }
      }
    }
  }
  measured.of_logits = run_points(ranks, *bench, all, options.samples);
}

void DpAttentionBench::print(const Ranks& ranks, const Measured& measured, const Crowd& crowd) const {
  const CrossingForm& form = measured.crossing;
  fmt::print("DP attention, tp {}, dp {}, {}{}, µs per operation\n{}\n{}", form.layout.tp, form.layout.dp,
             name(options.type), launch.blocks == 0 ? "" : fmt::format(", Weft on {} blocks", launch.blocks),
             headline(ranks, options), crowd.warning());
  std::string legend;
  if (!measured.crossings.empty()) {
    fmt::print("\nCrossings, rows of {}{}\n", form.hidden,
               !form.norm       ? ""
               : form.norm->fp8 ? ", with a norm and fp8 per 128 columns"
                                : ", with a norm");
    print_tables(measured.methods, [&](Method method) { return crossing_table(measured.crossings, method, crowd); });
    legend += crossing_legend(measured.crossings, form);
  }
  if (!measured.of_logits.empty()) {
    fmt::print("\nLogits of {} columns, {} of each rank\n", measured.logits.vocabulary,
               measured.logits.shard(ranks.world_size()));
    print_tables(measured.methods, [&](Method method) { return logits_table(measured.of_logits, method, crowd); });
    legend += fmt::format("Logits. {}{}",
                          measured.logits.groups == 1 ? "" : "busy: of the first group, the others have 1 row.\n",
                          logits_legend(measured.logits));
  }
  fmt::print("\n{}\n{}{}", verdict_line(compared(measured.crossings) + compared(measured.of_logits)), kSpreadLegend,
             legend);
  for (const auto& note : measured.notes) fmt::print("{}\n", note);
  fmt::print("{}", crowd.warning());
}

void DpAttentionBench::write(const Ranks& ranks, const Measured& measured) const {
  std::vector<Result> all = measured.crossings;
  all.insert(all.end(), measured.of_logits.begin(), measured.of_logits.end());
  const Crowd crowd = crowd_of(ranks, all);
  if (options.tables_on_stdout()) print(ranks, measured, crowd);
  if (!options.csv.empty()) write_text(options.csv, to_csv({.ranks = ranks.world_size(), .crowd = crowd}, all));
  if (!options.wants_report()) return;
  auto json = report(run_info({"bench dp-attention", arguments, measured.notes, crowd}, ranks, options),
                     describe_machine(), to_json(all, crowd));
  json["layout"] = {{"tp", measured.crossing.layout.tp}, {"dp", measured.crossing.layout.dp}};
  json["norm"] = norm;
  json["vocabulary"] = measured.logits.vocabulary;
  options.write(json);
}

// Throws if every rank would reject these rows.
void DpAttentionBench::check_norm(const CrossingForm& form) const {
  if (!form.norm) return;
  if (options.type == DataType::f32)
    throw Error(Errc::invalid_argument, fmt::format("--norm {}: --dtype f32 is neither bf16 nor f16", norm));
  const std::int64_t unit = form.norm->fp8 ? std::int64_t{kScaleColumns} : 8;
  if (form.hidden % unit != 0)
    throw Error(Errc::invalid_argument,
                fmt::format("--norm {}: hidden {} is not a multiple of {}", norm, form.hidden, unit));
}

int DpAttentionBench::run() const {
  static_cast<void>(counts(Device::cpu));  // complains of bad numbers before anything is started
  if (options.ranks != 0) static_cast<void>(layout(options.ranks));
  const ModelShape shape = model.shape();
  Measured measured;
  measured.logits.vocabulary = vocabulary != 0 ? vocabulary : shape.vocabulary;
  const bool has_logits = measured.logits.vocabulary != 0;
  if (!has_logits && !what.empty() && wants(kLogits))
    throw Error(Errc::invalid_argument,
                fmt::format("--what {}: {} has no vocab_size, and there is no --vocabulary", kLogits, shape.name));
  Ranks ranks(options.ranks_at_hand());
  const ParallelLayout asked = layout(ranks.world_size());
  measured.crossing = {.layout = scaled(asked, ranks.world_size()), .hidden = hidden != 0 ? hidden : shape.hidden};
  measured.logits.groups = static_cast<std::size_t>(measured.crossing.layout.dp);
  if (norm != "none") measured.crossing.norm.emplace();
  if (norm == "fp8") measured.crossing.norm->fp8 = Fp8Scaling::per_128_columns;
  check_norm(measured.crossing);
  // First, since separate crossings make groups, and with groups a call on all ranks has fewer of a GPU's blocks.
  if (has_logits && wants(kLogits)) measure_logits(ranks, measured);
  if (std::ranges::any_of(kCrossings, [&](Operation one) { return wants(name(one)); }))
    measure_crossings(ranks, measured);
  if (const std::string note = unused_tuning(ranks, options.tuning); !note.empty()) measured.notes.push_back(note);
  if (!has_logits) measured.notes.push_back(fmt::format("Logits: {} has no vocab_size", shape.name));
  const ParallelLayout& used = measured.crossing.layout;
  if (used.tp != asked.tp)
    measured.notes.push_back(
        fmt::format("tp {}, dp {} does not fit: the {} present ranks were measured as tp {}, dp {}", asked.tp, asked.dp,
                    used.tp, used.tp, used.dp));
  if (ranks.leader()) write(ranks, measured);
  return all_correct(measured.crossings) && all_correct(measured.of_logits) ? 0 : 1;
}

}  // namespace

Command add_bench_dp_attention(CLI::App& app, const std::vector<std::string>& arguments) {
  const auto bench = std::make_shared<DpAttentionBench>();
  bench->arguments = arguments;
  bench->model.add_to(app, "--model", "Model that gives the hidden size and the vocabulary");
  app.add_option("--hidden", bench->hidden, "Elements of a row (default: the model's)")
      ->check(whole_number(1, 1 << 20));
  app.add_option("--vocabulary", bench->vocabulary, "Columns of the logits (default: the model's)")
      ->check(whole_number(1, 1 << 21));
  app.add_option("--what", bench->what, "gather_sums, scatter_sums, logits (default: all)")
      ->delimiter(',')
      ->check(CLI::IsMember(std::vector<std::string>{"gather_sums", "scatter_sums", "logits"}));
  auto* tp = app.add_option("--tp", bench->options.ranks,
                            "Ranks, like --ranks; a layout for more GPUs than there are is measured on those present")
                 ->check(whole_number(1, 72));
  app.add_option("--dp", bench->dp, "Attention groups, a divisor of --tp (default: 1)")->check(whole_number(1, 72));
  app.add_option("--tokens", bench->tokens, "Tokens of an attention group, \"1,8,64\" (default: 1 to 512 on GPUs)");
  app.add_option("--load", bench->loads, "balanced, busy (default: both)")
      ->delimiter(',')
      ->check(CLI::IsMember(std::vector<std::string>{"balanced", "busy"}));
  add_choices(
      app, "--padding", bench->paddings,
      {Padding::none, Padding::aligned, Padding::max, Padding::fixed, Padding::per_rank},
      "Padding of Weft's slots, side by side: aligned to 8 rows, max and fixed for the largest rank, given rank "
      "by rank (default: none,max)");
  app.add_option(
         "--norm", bench->norm,
         "Residual and norm on the way: none, same (rows of --dtype), fp8 (scales per 128 columns; default: none)")
      ->check(CLI::IsMember(std::vector<std::string>{"none", "same", "fp8"}));
  add_choice(app, "--dtype", bench->options.type, {DataType::bf16, DataType::f16, DataType::f32}, "Element type");
  add_method(app, bench->methods);
  add_launch(app, bench->launch, "Weft's kernels, and so the most SMs that they use");
  bench->options.add_to(app);
  bench->options.add_tuning_to(app);
  bench->options.add_sharing_to(app);
  tp->excludes(app.get_option("--ranks"));
  bench->options.add_data_to(app);
  return [bench] { return bench->run(); };
}

}  // namespace weft::cli
