// weft bench: measures the communication of a model's layers, at decode and prefill sizes.
#include <fmt/format.h>

#include <memory>

#include "bench/bench_options.hpp"
#include "bench/csv.hpp"
#include "bench/model_layers.hpp"
#include "common/commands.hpp"
#include "common/options.hpp"
#include "common/sizes.hpp"
#include "common/tuning_note.hpp"
#include "models/model_choice.hpp"
#include "workloads/speed_up.hpp"

namespace weft::cli {
namespace {

constexpr const char* kLayersTitle =
    "Data-parallel attention and expert parallelism: per layer a gather and a scatter of all tokens,\n"
    "or a dispatch (fp8, or bf16 if a note says so) and a combine. `weft bench gather` and\n"
    "`weft bench moe` measure them in detail\n";

struct ModelBench {
  std::vector<std::string> arguments;
  BenchOptions options;
  ModelChoice model{"deepseek-v3"};
  std::string tokens;

  int run() const;
};

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
  Ranks ranks(options.ranks_args());
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
  const LayerResults layers = measure_layers(ranks, model_shape, batches, options);
  notes.insert(notes.end(), layers.notes.begin(), layers.notes.end());
  const bool correct = all_correct(results) && layers.correct();
  if (!ranks.leader()) return correct ? 0 : 1;

  std::vector<Result> all_results = results;
  all_results.insert(all_results.end(), layers.gathers.begin(), layers.gathers.end());
  const Crowd crowd = crowd_of(ranks, all_results);
  if (options.tables_on_stdout()) {
    print_intro(model_shape, ranks, crowd, options);
    fmt::print("{}\n", table_of(model_shape, results, crowd).text());
    if (ranks.world_size() > 1) fmt::print("{}\n{}\n", kLayersTitle, layer_table(model_shape, layers, crowd).text());
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
  bench->options.add_op_to(app);
  bench->options.add_to(app);
  bench->options.add_data_to(app);
  bench->options.add_tuning_to(app);
  add_choice(app, "--dtype", bench->options.type, {DataType::bf16, DataType::f16, DataType::f32}, "Element type");
  return [bench] { return bench->run(); };
}

}  // namespace weft::cli
