// weft bench dp-attention: tokens that cross between data-parallel attention and layers that all ranks share.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "bench/bench_options.hpp"
#include "bench/crossing_measure.hpp"
#include "bench/crossing_tables.hpp"
#include "bench/csv.hpp"
#include "common/commands.hpp"
#include "common/options.hpp"
#include "common/values.hpp"
#include "models/model_choice.hpp"
#include "weft/moe.hpp"
#include "workloads/gather_shape.hpp"

namespace weft::cli {
namespace {

constexpr Operation kCrossings[] = {Operation::gather_sums, Operation::scatter_sums};

struct DpAttentionBench {
  std::vector<std::string> arguments;
  BenchOptions options;
  ModelChoice model{"deepseek-v3"};
  std::int64_t hidden = 0;
  int dp = 0;
  std::string tokens;
  std::vector<std::string> loads;
  std::vector<Padding> paddings = {Padding::none, Padding::max};
  std::string norm = "none";
  std::string methods = "all";
  Launch launch = {};

  std::vector<std::int64_t> counts(Device device) const;
  ParallelLayout layout(int world) const;
  void add_points(std::vector<Point>& all, const Bench& bench, const CrossingForm& form, Point point) const;
  std::vector<Point> points(const Bench& bench, const CrossingForm& form, Device device) const;
  void write(const Ranks& ranks, const Bench& bench, const CrossingForm& form, const std::vector<Result>& results,
             const std::vector<std::string>& notes) const;
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
    for (const auto load : {Load::balanced, Load::busy}) {
      if (!loads.empty() && std::ranges::find(loads, name(load)) == loads.end()) continue;
      if (load == Load::busy && form.layout.dp == 1) continue;  // no other group can be idle
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

void DpAttentionBench::write(const Ranks& ranks, const Bench& bench, const CrossingForm& form,
                             const std::vector<Result>& results, const std::vector<std::string>& notes) const {
  const Crowd crowd = crowd_of(ranks, results);
  if (options.tables_on_stdout()) {
    fmt::print("Crossings of DP attention, tp {}, dp {}, rows of {} {}{}{}, µs per operation\n{}\n{}", form.layout.tp,
               form.layout.dp, form.hidden, name(options.type),
               !form.norm       ? ""
               : form.norm->fp8 ? ", with a norm and fp8 per 128 columns"
                                : ", with a norm",
               launch.blocks == 0 ? "" : fmt::format(", Weft on {} blocks", launch.blocks), headline(ranks, options),
               crowd.warning());
    print_tables(methods_named(bench, methods), [&](Method method) { return crossing_table(results, method, crowd); });
    fmt::print("\n{}\n{}{}", verdict_line(compared(results)), kSpreadLegend, crossing_legend(results, form));
    for (const auto& note : notes) fmt::print("{}\n", note);
    fmt::print("{}", crowd.warning());
  }
  if (!options.csv.empty()) write_text(options.csv, to_csv({.ranks = ranks.world_size(), .crowd = crowd}, results));
  if (!options.wants_report()) return;
  auto json = report(run_info({"bench dp-attention", arguments, notes, crowd}, ranks, options), describe_machine(),
                     to_json(results, crowd));
  json["layout"] = {{"tp", form.layout.tp}, {"dp", form.layout.dp}};
  json["norm"] = norm;
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
  Ranks ranks(options.ranks_at_hand());
  const ParallelLayout asked = layout(ranks.world_size());
  CrossingForm form{.layout = scaled(asked, ranks.world_size()), .hidden = hidden};
  if (hidden == 0) form.hidden = model.shape().hidden;
  if (norm != "none") form.norm.emplace();
  if (norm == "fp8") form.norm->fp8 = Fp8Scaling::per_128_columns;
  check_norm(form);
  std::size_t largest = 0;
  for (const auto count : counts(ranks.device()))
    for (const auto padding : paddings)
      largest = std::max(largest, crossing_bytes(form, {.rows = count, .type = options.type, .padding = padding}));
  const auto bench = open_crossing_bench(ranks, options.bench_args(largest), form);
  auto notes = bench->notes();
  if (form.layout.tp != asked.tp)
    notes.push_back(fmt::format("tp {}, dp {} does not fit: the {} present ranks were measured as tp {}, dp {}",
                                asked.tp, asked.dp, form.layout.tp, form.layout.tp, form.layout.dp));
  const auto results = run_points(ranks, *bench, points(*bench, form, ranks.device()), options.samples);
  if (ranks.leader()) write(ranks, *bench, form, results, notes);
  return all_correct(results) ? 0 : 1;
}

}  // namespace

Command add_bench_dp_attention(CLI::App& app, const std::vector<std::string>& arguments) {
  const auto bench = std::make_shared<DpAttentionBench>();
  bench->arguments = arguments;
  bench->model.add_to(app, "--model", "Model that gives the hidden size");
  app.add_option("--hidden", bench->hidden, "Elements of a row (default: the model's)")
      ->check(whole_number(1, 1 << 20));
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
  bench->options.add_sharing_to(app);
  tp->excludes(app.get_option("--ranks"));
  bench->options.add_data_to(app);
  return [bench] { return bench->run(); };
}

}  // namespace weft::cli
