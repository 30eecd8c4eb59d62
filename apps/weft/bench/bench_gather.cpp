// weft bench gather: the gathers and scatters of data-parallel attention, equal and ragged.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>

#include "bench/bench_options.hpp"
#include "bench/csv.hpp"
#include "bench/gather_measure.hpp"
#include "common/commands.hpp"
#include "common/options.hpp"
#include "common/sizes.hpp"
#include "common/tuning_note.hpp"
#include "common/values.hpp"
#include "models/model_choice.hpp"
#include "workloads/speed_up.hpp"

namespace weft::cli {
namespace {

constexpr std::int64_t kMostTokens = 1 << 20;
constexpr Operation kOperations[] = {Operation::all_gather, Operation::reduce_scatter, Operation::all_to_all,
                                     Operation::broadcast, Operation::barrier, Operation::all_gather_v,
                                     Operation::reduce_scatter_v, Operation::four_tensors,
                                     // Last, since they make groups, and with groups other calls have fewer blocks.
                                     Operation::attn_reduce_scatter, Operation::attn_all_gather};

// A layer with data-parallel attention makes no such call: it is only measured if an option names it.
constexpr bool is_extra(Operation operation) {
  return operation >= Operation::all_to_all && operation <= Operation::barrier;
}

struct GatherBench {
  std::vector<std::string> arguments;
  BenchOptions options;
  ModelChoice model{"deepseek-v3"};
  std::int64_t hidden = 0;
  std::int64_t row_bytes = 0;
  int dp = 0;
  std::string tokens;
  std::vector<std::string> what;   // empty: all except extras
  std::vector<std::string> loads;  // empty: both
  Padding padding = Padding::none;
  std::string methods = "all";
  Launch launch = {};

  GatherModel shape() const;
  std::vector<std::int64_t> batches(Device device) const;
  void check_layout(int tp) const;
  ParallelLayout layout(int world) const;
  std::vector<Point> points(const Bench& bench, const GatherModel& model, Device device) const;
  void write(const Ranks& ranks, const Bench& bench, const GatherModel& model, const std::vector<Result>& results,
             const std::vector<std::string>& notes) const;
  int run() const;
};

// Everything except the layout, which depends on the ranks.
GatherModel GatherBench::shape() const {
  const ModelShape model_shape = model.shape();
  GatherModel gathered{.hidden = hidden != 0 ? hidden : model_shape.hidden};
  gathered.padding = padding;
  if (model_shape.has_experts()) gathered.top_k = model_shape.top_k;
  const auto size = static_cast<std::int64_t>(size_of(options.type));
  if (row_bytes % size != 0)
    throw Error(Errc::invalid_argument, fmt::format("--row-bytes {}: must be a multiple of {}, the size of {}",
                                                    row_bytes, size, name(options.type)));
  if (row_bytes != 0) gathered.hidden = row_bytes / size;
  return gathered;
}

// Decode and prefill batches of an attention group. CPU ranks get batches that they move quickly.
std::vector<std::int64_t> GatherBench::batches(Device device) const {
  auto all =
      parse_counts(!tokens.empty() ? tokens : (device == Device::cuda ? "1,8,32,64,128,256,512,1024,2048" : "1,8,64"),
                   "--tokens", kMostTokens);
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

void GatherBench::check_layout(int tp) const {
  if (dp == 0 || tp % dp == 0) return;
  std::vector<int> divisors;
  for (int d = 1; d <= tp; ++d)
    if (tp % d == 0) divisors.push_back(d);
  throw Error(Errc::invalid_argument,
              fmt::format("--dp {}: must divide --tp {}: {}", dp, tp, fmt::join(divisors, ", ")));
}

ParallelLayout GatherBench::layout(int world) const {
  const int tp = options.ranks != 0 ? options.ranks : world;
  check_layout(tp);
  if (tp < world) throw Error(Errc::invalid_argument, fmt::format("--tp {}: the launcher started {} ranks", tp, world));
  return {.tp = tp, .dp = dp != 0 ? dp : tp};
}

std::vector<Point> GatherBench::points(const Bench& bench, const GatherModel& gathered, Device device) const {
  const auto wanted = [](const std::vector<std::string>& list, std::string_view text) {
    return list.empty() || std::find(list.begin(), list.end(), text) != list.end();
  };
  const auto some_methods = methods_named(bench, methods);
  std::vector<Point> all;
  for (const auto operation : kOperations) {
    const bool ragged = is_ragged(operation);
    for (const auto load : {Load::balanced, Load::busy}) {
      // Equal operations have one load. With one attention group no group can be idle.
      if (!wanted(what, name(operation)) || (what.empty() && is_extra(operation))) continue;
      if (!ragged && load == Load::busy) continue;
      if (is_in_groups(operation) && gathered.layout.attn_tp() == 1) continue;
      if (ragged && (!wanted(loads, name(load)) || (load == Load::busy && gathered.layout.dp == 1))) continue;
      for (const auto count : batches(device)) {
        if (operation == Operation::barrier && count != batches(device).front()) continue;  // it has no size
        Point point = gather_point(gathered, operation, load, count, options.type);
        for (const auto contender : bench.contenders(operation)) {
          point.contender = contender;
          point.launch = is_peer(contender) ? Launch{} : launch;
          for (const auto method : some_methods) {
            point.method = method;
            all.push_back(point);
          }
        }
      }
    }
  }
  return all;
}

Table gather_table(const std::vector<Result>& results, Method method, const Crowd& crowd) {
  std::vector<Contender> contenders = contenders_in(results, method);
  std::sort(contenders.begin(), contenders.end());  // Weft's own first
  std::vector<std::string> columns = {"operation", "load", "tokens", "size"};
  for (const auto contender : contenders)
    columns.emplace_back(contender == Contender::automatic ? "Weft" : name(contender));
  columns.insert(columns.end(), {"GB/s", "speed-up"});
  Table table(columns, 4);
  for (const auto& ours : results) {
    const Point& point = ours.point;
    if (point.method != method || point.contender != Contender::automatic) continue;
    std::vector<std::string> cells = {std::string(name(point.operation)), std::string(name(point.load)),
                                      std::to_string(point.rows), format_bytes(point.bytes())};
    for (const auto contender : contenders) cells.push_back(cell(in_row(results, point, contender)));
    const bool rated = ours.verdict == Verdict::ok && point.bytes() != 0;
    cells.push_back(rated ? fmt::format("{:.2f}", ours.gb_per_s()) : "-");
    cells.push_back(cell(speed_up(ours, best_peer(results, point), crowd)));
    table.add(cells);
  }
  return table;
}

constexpr const char* kLegend =
    "tokens: of an attention group; busy: of the first one, the others have 1. size: all ranks' rows,\n"
    "GB/s: size over time.\n"
    "all_to_all, broadcast: size is the output of a rank; NCCL's barrier is an all-reduce of one element.\n"
    "attn_: in every attention group at the same time; the other operations are over all ranks.\n"
    "padded: Weft's equal form, with as many rows on every rank as the largest rank has.\n"
    "one tensor: the bytes of the four as one tensor.\n"
    "speed-up: best peer's time over Weft's; NCCL's ragged forms are groups of broadcasts or reductions.\n";

void GatherBench::write(const Ranks& ranks, const Bench& bench, const GatherModel& gathered,
                        const std::vector<Result>& results, const std::vector<std::string>& notes) const {
  const auto row = static_cast<std::size_t>(gathered.hidden) * size_of(options.type);
  const Crowd crowd = crowd_of(ranks, results);
  if (options.tables_on_stdout()) {
    fmt::print(
        "Gathers and scatters of DP attention, tp {}, dp {}, rows of {} bytes ({}), padding {}{}, µs per "
        "operation\n{}\n{}",
        gathered.layout.tp, gathered.layout.dp, row, name(options.type), name(padding),
        launch.blocks == 0 ? "" : fmt::format(", Weft on {} blocks", launch.blocks), headline(ranks, options),
        crowd.warning());
    print_tables(methods_named(bench, methods), [&](Method method) { return gather_table(results, method, crowd); });
    fmt::print("\n{}\n{}{}", verdict_line(compared(results)), kSpreadLegend, kLegend);
    for (const auto& note : notes) fmt::print("{}\n", note);
    fmt::print("{}", crowd.warning());
  }
  if (!options.csv.empty()) write_text(options.csv, to_csv({.ranks = ranks.world_size(), .crowd = crowd}, results));
  if (!options.wants_report()) return;
  auto json = report(run_info({"bench gather", arguments, notes, crowd}, ranks, options), describe_machine(),
                     to_json(results, crowd));
  json["layout"] = {{"tp", gathered.layout.tp}, {"dp", gathered.layout.dp}};
  json["row_bytes"] = row;
  json["padding"] = name(padding);
  options.write(json);
}

int GatherBench::run() const {
  GatherModel gathered = shape();
  static_cast<void>(batches(Device::cpu));  // complains of bad sizes before anything is started
  if (options.ranks != 0) check_layout(options.ranks);
  Ranks ranks(options.ranks_at_hand());
  const ParallelLayout asked = layout(ranks.world_size());
  gathered.layout = scaled(asked, ranks.world_size());
  for (const auto operation : kOperations)
    if (is_in_groups(operation) && gathered.layout.attn_tp() == 1 &&
        std::find(what.begin(), what.end(), name(operation)) != what.end())
      throw Error(Errc::invalid_argument,
                  fmt::format("--what {}: an attention group has one rank; take a smaller --dp", name(operation)));

  std::size_t largest = 0;
  for (const auto operation : kOperations)
    largest = std::max(largest, gather_bytes(gathered, gather_point(gathered, operation, Load::balanced,
                                                                    batches(ranks.device()).back(), options.type)));
  const auto bench = open_gather_bench(ranks, options.bench_args(largest), gathered);
  auto notes = bench->notes();
  if (const std::string note = unused_tuning(ranks, options.tuning); !note.empty()) notes.push_back(note);
  if (gathered.layout.tp != asked.tp)
    notes.push_back(fmt::format("tp {}, dp {} does not fit: the {} present ranks were measured as tp {}, dp {}",
                                asked.tp, asked.dp, gathered.layout.tp, gathered.layout.tp, gathered.layout.dp));
  const auto results = run_points(ranks, *bench, points(*bench, gathered, ranks.device()), options.samples);
  if (ranks.leader()) write(ranks, *bench, gathered, results, notes);
  return all_correct(results) ? 0 : 1;
}

}  // namespace

Command add_bench_gather(CLI::App& app, const std::vector<std::string>& arguments) {
  const auto bench = std::make_shared<GatherBench>();
  bench->arguments = arguments;
  bench->model.add_to(app, "--model", "Model that gives the hidden size");
  auto* hidden = app.add_option("--hidden", bench->hidden, "Elements of a row (default: the model's)")
                     ->check(whole_number(1, 1 << 20));
  app.add_option("--row-bytes", bench->row_bytes, "Bytes of a row instead")
      ->check(whole_number(1, 1 << 22))
      ->excludes(hidden);
  auto* tp = app.add_option("--tp", bench->options.ranks,
                            "Ranks, like --ranks; a layout for more GPUs than there are is measured on those present")
                 ->check(whole_number(1, 72));
  app.add_option("--dp", bench->dp, "Attention groups, a divisor of --tp (default: one for each rank)")
      ->check(whole_number(1, 72));
  app.add_option("--tokens", bench->tokens,
                 "Tokens of an attention group, \"1,8,128\" (default: decode and prefill, 1 to 2048 on GPUs)");
  std::vector<std::string> names;
  for (const auto operation : kOperations) names.emplace_back(name(operation));
  app.add_option("--what", bench->what,
                 "Operations, \"all_gather,reduce_scatter_v\" (default: all except all_to_all, broadcast and barrier)")
      ->delimiter(',')
      ->check(CLI::IsMember(names));
  app.add_option("--load", bench->loads, "Tokens of ragged operations: balanced, busy (default: both)")
      ->delimiter(',')
      ->check(CLI::IsMember({"balanced", "busy"}));
  add_choice(app, "--padding", bench->padding,
             {Padding::none, Padding::aligned, Padding::max, Padding::fixed, Padding::per_rank},
             "Padding of ragged operations: aligned to 8 rows, fixed for the largest rank, given rank by rank; peers "
             "only know rows without padding");
  add_choice(app, "--dtype", bench->options.type, {DataType::bf16, DataType::f16, DataType::f32, DataType::i32},
             "Element type");
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
