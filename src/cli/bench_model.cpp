// weft bench: what a model's layers communicate, at decode and prefill sizes.
#include <fmt/format.h>

#include <memory>

#include "bench_options.hpp"
#include "commands.hpp"
#include "model_choice.hpp"
#include "model_layers.hpp"
#include "options.hpp"
#include "sizes.hpp"

namespace weft::cli {
namespace {

constexpr const char* kLayersTitle =
    "Data-parallel attention and expert parallelism: per layer a gather and a scatter of all tokens, or a dispatch "
    "(fp8,\nor bf16 where that is said) and a combine, which `weft bench gather` and `weft bench moe` measure in "
    "detail\n";

struct ModelBench {
  std::vector<std::string> arguments;
  BenchOptions options;
  ModelChoice model{"deepseek-v3"};
  std::string tokens;

  int run() const;
};

// Decode batches, and prefill chunks; CPU ranks, good for a few GB/s, get chunks that keep the whole run short.
std::vector<std::int64_t> default_tokens(Device device) {
  std::vector<std::int64_t> tokens = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024};
  if (device == Device::cuda) tokens.insert(tokens.end(), {2048, 4096, 8192});
  return tokens;
}

Table table_of(const ModelShape& shape, const std::vector<Result>& results, Method method) {
  Table table({"phase", "tokens", "shape", "size", "µs", "GB/s", "algorithm", "peer", "peer µs", "ratio",
               "µs per forward pass"});
  for (const auto& result : results) {
    const Point& point = result.point;
    if (point.contender != Contender::automatic) continue;
    const Result* peer = fastest(results, point.bytes(), method, is_peer);
    const bool ok = result.verdict == Verdict::ok;
    table.add({point.rows <= 256 ? "decode" : "prefill", std::to_string(point.rows),
               fmt::format("[{}, {}] {}", point.rows, point.hidden, name(point.type)), format_bytes(point.bytes()),
               cell(&result), ok ? fmt::format("{:.2f}", result.gb_per_s()) : "-", result.chosen,
               peer != nullptr ? std::string(name(peer->point.contender)) : "-", cell(peer),
               ok && peer != nullptr ? fmt::format("{:.2f}", peer->us / result.us) : "-",
               ok ? fmt::format("{:.0f}", result.us * static_cast<double>(shape.all_reduces)) : "-"});
  }
  return table;
}

void print_intro(const ModelShape& shape, const Ranks& ranks) {
  fmt::print("{}: {}\n{}\n", shape.name, in_words(shape), headline(ranks));
  fmt::print("Tensor parallel: an all-reduce of [tokens, {}] after each block, {} times per forward pass\n\n",
             shape.hidden, shape.all_reduces);
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
  bench.reset();  // its memory and its peer's are wanted
  const LayerResults layers = measure_layers(ranks, model_shape, batches, options);
  notes.insert(notes.end(), layers.notes.begin(), layers.notes.end());
  const bool correct = all_correct(results) && layers.correct();
  if (!ranks.leader()) return correct ? 0 : 1;

  const Table table = table_of(model_shape, results, method), others = layer_table(model_shape, layers);
  if (options.tables_on_stdout()) {
    print_intro(model_shape, ranks);
    fmt::print("{}\n", table.text());
    if (ranks.world_size() > 1) fmt::print("{}\n{}\n", kLayersTitle, others.text());
    fmt::print("{}\n", verdict_line(correct));
    fmt::print(
        "GB/s: bytes of one rank's buffer over the time (algorithm bandwidth). ratio: peer's time over Weft's.\n");
    for (const auto& note : notes) fmt::print("{}\n", note);
  }
  if (!options.csv.empty())
    write_text(options.csv, Table::joined({table.with("operation", "all_reduce"), others}).csv());
  if (options.wants_report()) {
    auto json = report(run_info("bench", arguments, ranks, options, notes), describe_machine(), to_json(results));
    json["model"] = to_json(model_shape);
    json["gathers"] = to_json(layers.gathers);
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
