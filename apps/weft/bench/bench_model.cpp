// weft bench: measures the communication of a model's layers, at decode and prefill sizes.
#include <fmt/format.h>

#include <memory>
#include <optional>

#include "bench/bench_options.hpp"
#include "bench/csv.hpp"
#include "bench/model_layers.hpp"
#include "common/commands.hpp"
#include "common/options.hpp"
#include "common/sizes.hpp"
#include "common/tuning_note.hpp"
#include "common/values.hpp"
#include "models/model_choice.hpp"
#include "workloads/gather_shape.hpp"
#include "workloads/speed_up.hpp"

namespace weft::cli {
namespace {

constexpr const char* kLayersTitle =
    "Data-parallel attention and expert parallelism: per layer a gather and a scatter of all tokens,\n"
    "or a dispatch (fp8, or bf16 if a note says so) and a combine. tokens: of an attention group; in an\n"
    "exchange, of a rank. `weft bench gather`, `weft bench dp-attention` and `weft bench moe` measure\n"
    "them in detail\n";
constexpr const char* kWaysLegend =
    "Each way is the whole job's: the same tokens in all. calls: of a forward pass; their times add up.\n"
    "peer: the best of each call's peers. Norms, logits and GEMMs are not counted.\n";

struct ModelBench {
  std::vector<std::string> arguments;
  BenchOptions options;
  ModelChoice model{"deepseek-v3"};
  std::string tokens;
  int dp = 0, ep = 0, moe_dense_tp = 0;  // 0: --tp's
  std::string shared_experts = "replicated";
  bool for_more_gpus = false;  // --tp was given, not --ranks

  ModelLayout layout(const ModelShape& shape, int tp) const;
  int run() const;
};

ModelLayout ModelBench::layout(const ModelShape& shape, int tp) const {
  const ModelLayout parallel{.layout = {.tp = tp,
                                        .dp = dp != 0 ? dp : tp,
                                        .ep = ep != 0               ? ep
                                              : shape.has_experts() ? tp
                                                                    : 1,
                                        .moe_dense_tp = moe_dense_tp},
                             .split_shared_experts = shared_experts == "split"};
  parallel.check(shape);
  return parallel;
}

// The same on the ranks at hand, if they are fewer. Experts and dense layers stay on one rank or on all.
ModelLayout on_ranks(ModelLayout parallel, int ranks) {
  ParallelLayout& layout = parallel.layout;
  const ParallelLayout fitting = scaled(layout, ranks);
  if (layout.ep > 1) layout.ep = fitting.tp;
  if (layout.moe_dense_tp > 1) layout.moe_dense_tp = fitting.tp;
  layout.tp = fitting.tp;
  layout.dp = fitting.dp;
  return parallel;
}

// One way with so many tokens.
struct Pass {
  std::int64_t tokens;
  ModelWay way;
  StepTimes times;
  PassTime total() const { return total_of(way, times); }
};

Table table_of(const std::vector<Pass>& passes, const Crowd& crowd) {
  Table table({"tokens", "way", "calls", "Weft µs", "peer µs", "ratio"}, 3);
  const auto cell = [](std::optional<double> us) { return us ? fmt::format("{:.0f}", *us) : std::string("-"); };
  for (const Pass& pass : passes) {
    const auto [weft, peer] = pass.total();
    const bool comparable = weft && peer && *weft > 0 && !crowd.crowded();
    table.add({std::to_string(pass.tokens), pass.way.name, in_words(pass.way), cell(weft), cell(peer),
               comparable ? fmt::format("{:.2f}", *peer / *weft) : "-"});
  }
  return table;
}

nlohmann::json json_of(const std::vector<Pass>& passes) {
  const auto value = [](std::optional<double> us) { return us ? nlohmann::json(*us) : nlohmann::json(nullptr); };
  nlohmann::json all = nlohmann::json::array();
  for (const Pass& pass : passes) {
    const auto [weft, peer] = pass.total();
    nlohmann::json calls = nlohmann::json::array();
    for (const auto& [step, times] : pass.way.steps) {
      const auto at = static_cast<std::size_t>(step);
      calls.push_back({{"call", name(step)},
                       {"times", times},
                       {"us", value(pass.times.weft[at])},
                       {"peer_us", value(pass.times.peer[at])}});
    }
    all.push_back({{"tokens", pass.tokens},
                   {"way", pass.way.name},
                   {"calls", calls},
                   {"us", value(weft)},
                   {"peer_us", value(peer)}});
  }
  return all;
}

// Decode batches and prefill chunks. CPU ranks move a few GB/s, so their chunks are small and the run stays short.
std::vector<std::int64_t> default_tokens(Device device) {
  std::vector<std::int64_t> tokens = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024};
  if (device == Device::cuda) tokens.insert(tokens.end(), {2048, 4096, 8192});
  return tokens;
}

Table table_of(const ModelShape& shape, const std::vector<Result>& results, const Crowd& crowd) {
  Table table({"tokens", "size", "µs", "GB/s", "algorithm", "peer", "peer µs", "ratio", "µs per pass"});
  for (const auto& result : results) {
    const Point& point = result.point;
    if (point.contender != Contender::automatic) continue;
    const Result* peer = best_peer(results, point);
    const bool ok = result.verdict == Verdict::ok;
    table.add({std::to_string(point.rows), format_bytes(point.bytes()), cell(&result),
               ok ? fmt::format("{:.2f}", result.gb_per_s()) : "-", result.chosen,
               peer != nullptr ? std::string(name(peer->point.contender)) : "-", cell(peer),
               cell(speed_up(result, peer, crowd)),
               ok ? fmt::format("{:.0f}", result.us * static_cast<double>(shape.all_reduces)) : "-"});
  }
  return table;
}

void print_intro(const ModelShape& shape, const Ranks& ranks, const Crowd& crowd, const BenchOptions& options) {
  fmt::print("{}: {}\n{}\n{}", shape.name, in_words(shape), headline(ranks, options), crowd.warning());
  fmt::print("Tensor parallel: an all-reduce of [tokens, {}] {} after each block, {} times per forward pass\n\n",
             shape.hidden, name(options.type), shape.all_reduces);
}

int ModelBench::run() const {
  const ModelShape model_shape = model.shape();
  const auto wanted = tokens.empty() ? std::vector<std::int64_t>{} : parse_counts(tokens, "--tokens", kMostRows);
  if (options.ranks != 0) static_cast<void>(layout(model_shape, options.ranks));  // before anything is started
  Ranks ranks(for_more_gpus ? options.ranks_at_hand() : options.ranks_args());
  const int tp = for_more_gpus ? options.ranks : ranks.world_size();
  if (tp < ranks.world_size())
    throw Error(Errc::invalid_argument, fmt::format("--tp {}: the launcher started {} ranks", tp, ranks.world_size()));
  const ModelLayout asked = layout(model_shape, tp), parallel = on_ranks(asked, ranks.world_size());
  const auto batches = wanted.empty() ? default_tokens(ranks.device()) : wanted;

  std::vector<Point> points;
  std::size_t largest = 0;
  for (const auto rows : batches) {
    points.push_back({.count = static_cast<std::size_t>(rows * model_shape.hidden),
                      .rows = rows,
                      .hidden = model_shape.hidden,
                      .type = options.type,
                      .op = options.op});
    largest = std::max(largest, points.back().bytes());
  }
  auto bench = open_bench(ranks, options.bench_args(largest));
  const Method method = bench->methods().front();
  std::vector<Point> all;
  for (auto& point : points) {
    point.method = method;
    for (const auto contender : bench->contenders()) {
      if (!is_peer(contender) && contender != Contender::automatic) continue;
      point.contender = contender;
      all.push_back(point);
    }
  }
  const auto results = run_points(ranks, *bench, all, options.samples);
  auto notes = bench->notes();
  if (const std::string note = unused_tuning(ranks, options.tuning); !note.empty()) notes.push_back(note);
  bench.reset();  // frees its memory and its peer's for the measurements below
  const LayerResults layers =
      measure_layers(ranks, {.shape = model_shape, .parallel = parallel, .batches = batches, .options = options});
  if (parallel.layout.tp != asked.layout.tp)
    notes.push_back(fmt::format("tp {}, dp {} does not fit: the {} present ranks were measured as tp {}, dp {}",
                                asked.layout.tp, asked.layout.dp, parallel.layout.tp, parallel.layout.tp,
                                parallel.layout.dp));
  if (model_shape.shared_experts != 0 && parallel.layout.ep > 1 && !parallel.split_shared_experts)
    notes.push_back("EP: every rank has all shared experts, and sends nothing for them (--shared-experts split)");
  notes.insert(notes.end(), layers.notes.begin(), layers.notes.end());
  const bool correct = all_correct(results) && layers.correct();
  if (!ranks.leader()) return correct ? 0 : 1;

  std::vector<Result> all_results = results;
  all_results.insert(all_results.end(), layers.gathers.begin(), layers.gathers.end());
  const Crowd crowd = crowd_of(ranks, all_results);
  std::vector<Pass> passes;
  for (const auto batch : batches) {
    for (ModelWay& way : ways_of(model_shape, parallel))
      passes.push_back({batch, std::move(way), step_times(results, layers, parallel.layout, batch)});
  }
  if (options.tables_on_stdout()) {
    print_intro(model_shape, ranks, crowd, options);
    fmt::print("{}\n", table_of(model_shape, results, crowd).text());
    if (ranks.world_size() > 1) {
      fmt::print("{}\n{}\n", kLayersTitle, layer_table(model_shape, layers, crowd).text());
      fmt::print("µs of a forward pass, tp {}, dp {}, ep {}\n\n{}\n{}\n", parallel.layout.tp, parallel.layout.dp,
                 parallel.layout.ep, table_of(passes, crowd).text(), kWaysLegend);
    }
    fmt::print("{}\n{}", verdict_line(compared(all_results) + compared(layers.exchanges)), kSpreadLegend);
    fmt::print("GB/s: bytes of one rank's buffer over the time. ratio: peer's time over Weft's.\n");
    for (const auto& note : notes) fmt::print("{}\n", note);
    fmt::print("{}", crowd.warning());
  }
  if (!options.csv.empty())
    write_text(options.csv, to_csv({.ranks = ranks.world_size(), .crowd = crowd}, all_results, layers.exchanges));
  if (options.wants_report()) {
    auto json = report(run_info({"bench", arguments, notes, crowd}, ranks, options), describe_machine(),
                       to_json(results, crowd));
    json["model"] = to_json(model_shape);
    json["gathers"] = to_json(layers.gathers, crowd);
    json["exchanges"] = to_json(layers.exchanges);
    json["layout"] = {{"tp", parallel.layout.tp}, {"dp", parallel.layout.dp}, {"ep", parallel.layout.ep}};
    json["passes"] = json_of(passes);
    options.write(json);
  }
  return correct ? 0 : 1;
}

}  // namespace

Command add_bench(CLI::App& app, const std::vector<std::string>& arguments) {
  const auto bench = std::make_shared<ModelBench>();
  bench->arguments = arguments;
  bench->model.add_to(app, "--model", "One of");
  app.add_option("--tokens", bench->tokens,
                 "Tokens per forward pass, \"1,8,256\" (default: decode 1 to 256, prefill from 512)");
  const auto ranks = whole_number(1, 72);
  auto* const tp = app.add_option("--tp",
                                  "Ranks, like --ranks; a layout for more GPUs than there are is measured on "
                                  "those present")
                       ->check(ranks)
                       ->each([bench](const std::string& text) {
                         bench->options.ranks = std::stoi(text);
                         bench->for_more_gpus = true;
                       });
  app.add_option("--dp", bench->dp, "Attention groups, a divisor of --tp (default: --tp; 1: attention is split)")
      ->check(ranks);
  app.add_option("--ep", bench->ep, "Groups of experts: --tp, or 1 for none (default: --tp if there are experts)")
      ->check(ranks);
  app.add_option("--moe-dense-tp", bench->moe_dense_tp,
                 "Beside EP, the ranks that share a dense layer: --tp, or 1 (default: --tp)")
      ->check(ranks);
  app.add_option("--shared-experts", bench->shared_experts,
                 "Beside EP: replicated on every rank, or split over all (default: replicated)")
      ->check(CLI::IsMember(std::vector<std::string>{"replicated", "split"}));
  bench->options.add_op_to(app);
  bench->options.add_to(app);
  tp->excludes(app.get_option("--ranks"));
  bench->options.add_data_to(app);
  bench->options.add_tuning_to(app);
  add_choice(app, "--dtype", bench->options.type, {DataType::bf16, DataType::f16, DataType::f32}, "Element type");
  return [bench] { return bench->run(); };
}

}  // namespace weft::cli
