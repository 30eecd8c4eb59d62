// weft bench moe-layer: whole layers of experts in every schedule, with GEMMs, on the same transport.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "bench/bench_options.hpp"
#include "bench/columns_file.hpp"
#include "bench/layer_tables.hpp"
#include "bench/layer_ways.hpp"
#include "bench/tokens_file.hpp"
#include "common/commands.hpp"
#include "common/options.hpp"
#include "common/progress.hpp"
#include "common/sizes.hpp"
#include "common/values.hpp"
#include "models/model_choice.hpp"

namespace weft::cli {
namespace {

// The operations that columns of a file may show.
constexpr std::array<std::string_view, 4> kShown = {"dispatch", "combine", "both", "layer"};

TokensShape tokens_shape(const LayerShape& shape) {
  return {.command = "bench moe-layer",
          .routing = "uniform",
          .dispatched = std::string(name(shape.type)),
          .hidden = shape.hidden,
          .intermediate = shape.intermediate,
          .experts = shape.experts,
          .top_k = shape.top_k,
          .ranks = static_cast<int>(shape.ranks)};
}

RoutedTokens routed_tokens(const LayerShape& shape, std::uint32_t tokens) {
  RoutedTokens routed{.tokens = tokens, .layers = {}};
  for (std::uint32_t layer = 0; layer < LayerRank::kLayers; ++layer) {
    routed.layers.emplace_back();
    for (std::uint32_t rank = 0; rank < shape.ranks; ++rank) {
      LayerTokens of = make_layer_tokens(shape, rank, tokens, layer);
      routed.layers.back().push_back({std::move(of.ids), std::move(of.weights)});
    }
  }
  return routed;
}

struct LayerBench {
  std::vector<std::string> arguments;
  BenchOptions options;
  ModelChoice model{"deepseek-v3"};
  LayerOptions ways;
  std::string tokens, trace, tokens_out, columns;
  GemmTile tile = GemmTile::automatic;
  GemmType gemm = GemmType::fp8;
  std::uint32_t emulated = 0;
  std::int64_t intermediate = 0, shared_intermediate = 0;

  LayerRow measure(Ranks& ranks, std::vector<std::unique_ptr<LayerRank>>& opened, std::uint32_t count,
                   std::uint32_t most, const LayerShape& shape) const;
  void print(const Ranks& ranks, const ModelShape& model_shape, const LayerShape& shape,
             const std::vector<LayerRow>& rows) const;
  // Rivals run layers as they are.
  void check_rival_files(const LayerShape& shape) const;
  int run();
};

LayerRow LayerBench::measure(Ranks& ranks, std::vector<std::unique_ptr<LayerRank>>& opened, std::uint32_t count,
                             std::uint32_t most, const LayerShape& shape) const {
  LayerRow row{.tokens = count, .rows_per_expert = shape.rows_per_expert(count)};
  if (ranks.device() == Device::cuda) row.tile = tile_of({.rows_per_expert = row.rows_per_expert, .tile = tile});
  row.timed = timed_layers(ways, shape.local());
  std::erase_if(row.timed, [&](const TimedLayer& timed) {
    if (timed.part == TimedPart::sum) return shape.emulated == 0;
    return sends(timed.part) && timed.way.path == RowPath::slots && !LayerRank::have_slots(shape, count);
  });
  std::vector<std::string> wrong(opened.size());
  ranks.each([&](Ranks::Seat& seat) {
    const auto index = static_cast<std::size_t>(seat.local_index());
    if (opened[index] == nullptr)
      opened[index] = std::make_unique<LayerRank>(
          ranks, seat,
          LayerRank::Args{
              .shape = shape, .tokens = most, .peo = peo_divisions(ways), .tile = tile, .cluster = ways.cluster});
    LayerRank& rank = *opened[index];
    rank.upload(seat, count);
    const LayerOutputs plain = reference_outputs(seat, rank, {});
    wrong[index] = rank.check_gemms(LayerRank::kLayers - 1);
    std::map<LayerRounds, LayerOutputs> of_peo;
    const auto expected = [&](const LayerWay& way) -> const LayerOutputs& {
      if (way.peo == 0) return plain;
      const auto found = of_peo.find(way.division());
      return found != of_peo.end() ? found->second
                                   : of_peo.emplace(way.division(), reference_outputs(seat, rank, way)).first->second;
    };
    for (TimedLayer& timed : row.timed) {
      const LayerWay& way = timed.way;
      if (timed.part == TimedPart::layer) {
        const std::string of_way = compare_way(seat, rank, way, expected(way));
        if (wrong[index].empty()) wrong[index] = of_way;
      }
      auto all = time_part(seat, rank, timed.part, way, options.samples);
      const bool automatic = way.schedule == LayerSchedule::automatic;
      if (seat.local_index() == 0) {
        timed.samples = std::move(all);
        if (automatic) timed.chosen = in_words(rank.served(way.path));
      }
      if (automatic) continue;  // another way has its trace
      if ((trace.empty() && options.plot.empty()) || timed.part != TimedPart::layer) continue;
      const auto parts = seat.gather(as_numbers(rank.trace(seat, way, 0), way.rounds));
      if (seat.local_index() != 0) continue;
      row.traces.push_back({.title = fmt::format("{} tokens: {}", count, in_words(way)), .ranks = {}});
      for (const std::vector<double>& of_rank : parts) row.traces.back().ranks.push_back(from_numbers(of_rank));
    }
  });
  for (TimedLayer& timed : row.timed) timed.figure = figure_of(timed.samples);
  for (const std::string& one : wrong)
    if (row.wrong.empty()) row.wrong = one;
  row.virtual_tokens = make_layer_tokens(shape, 0, count, 0).count();
  return row;
}

void LayerBench::print(const Ranks& ranks, const ModelShape& of, const LayerShape& shape,
                       const std::vector<LayerRow>& rows) const {
  fmt::print("Layer of {}: {}, experts of {} columns, {} on each of {} ranks{}{}\n", of.name, in_words(of),
             shape.intermediate, shape.local(), ranks.world_size(),
             shape.shared != 0 ? fmt::format(", a shared expert of {} columns", shape.shared) : "",
             emulated != 0 ? fmt::format(", as a rank among {} would see it", emulated) : "");
  fmt::print("{} dispatched and between the GEMMs, masked layout, bf16 combined with weights{}\n{}\n", name(gemm),
             ways.cluster == 2 ? kInPairs : "", headline(ranks, options));
  for (const LayerRow& row : rows) {
    if (row.tile != GemmTile::automatic)
      fmt::print("{} tokens: {:.3g} rows expected of each expert, GEMMs with tiles of {} rows\n", row.tokens,
                 row.rows_per_expert, name(row.tile));
  }
  fmt::print("\n");
  fmt::print("{}", layer_tables(rows, shape));
  for (const LayerRow& row : rows)
    if (!row.wrong.empty()) fmt::print("WRONG: {} tokens: {}\n", row.tokens, row.wrong);
}

void LayerBench::check_rival_files(const LayerShape& shape) const {
  if (tokens_out.empty() && columns.empty()) return;
  if (emulated != 0 || shape.shared != 0)
    throw Error(Errc::invalid_argument,
                "moe-layer: rivals run real layers, so --tokens-out and --columns go with neither --emulate-ep nor "
                "--shared");
}

int LayerBench::run() {
  const ModelShape of = model.shape_with_experts();
  const auto counts = parse_counts(tokens, "--tokens", 1024);
  static_cast<void>(timed_layers(ways, 0));  // complains before anything is started
  check_outputs({{"--trace", trace}, {"--tokens-out", tokens_out}});
  // A kernel's first launch would load it, and so wait for a peer's combine on the same GPU, which waits for this rank.
  setenv("CUDA_MODULE_LOADING", "EAGER", 0);
  Ranks ranks(options.ranks_args());
  LayerShape shape = layer_shape_of(of, ranks.world_size(), emulated, intermediate, gemm);
  if (ways.shared) shape.shared = shared_columns_of(of, shared_intermediate, gemm);
  static_cast<void>(timed_layers(ways, shape.local()));
  check_gemms_for(ranks, shape, std::ranges::max(counts));
  if (ranks.device() == Device::cpu && tile != GemmTile::automatic)
    throw Error(Errc::invalid_argument, "moe-layer: --gemm-tile is for GPUs, and CPU ranks multiply in plain loops");
  check_rival_files(shape);
  const Columns others = read_columns(columns, {.shape = tokens_shape(shape),
                                                .gpu = gpu_of(ranks),
                                                .tokens = counts,
                                                .columns = {kShown.begin(), kShown.end()}});
  std::vector<RoutedTokens> routed;
  std::vector<std::vector<ColumnPoint>> of_counts;
  for (const std::int64_t count : counts) {
    routed.push_back(routed_tokens(shape, static_cast<std::uint32_t>(count)));
    of_counts.push_back(others.of(routed.back()));
  }
  if (ranks.leader() && !tokens_out.empty()) write_text(tokens_out, tokens_file(tokens_shape(shape), of.name, routed));
  std::vector<std::unique_ptr<LayerRank>> opened(static_cast<std::size_t>(ranks.local_size()));
  std::vector<LayerRow> rows;
  Progress progress(counts.size(), ranks.leader());
  for (const std::int64_t count : counts) {
    progress.step(fmt::format("{} tokens", count));
    rows.push_back(measure(ranks, opened, static_cast<std::uint32_t>(count),
                           static_cast<std::uint32_t>(std::ranges::max(counts)), shape));
    rows.back().others = of_counts[rows.size() - 1];
  }
  progress.clear();
  const bool right = std::ranges::all_of(rows, [](const LayerRow& row) { return row.wrong.empty(); });
  if (!ranks.leader()) return right ? 0 : 1;
  std::vector<LayerTrace> traces;
  for (const LayerRow& row : rows) traces.insert(traces.end(), row.traces.begin(), row.traces.end());
  if (!trace.empty()) write_text(trace, trace_events(traces).dump(1) + "\n");
  if (options.tables_on_stdout()) {
    print(ranks, of, shape, rows);
    for (const std::string& note : others.notes) fmt::print("{}\n", note);
  }
  if (options.wants_report()) {
    auto json = report(run_info({"bench moe-layer", arguments, others.notes, {}}, ranks, options), describe_machine(),
                       points_of(rows));
    json.erase("data");
    json["model"] = cli::to_json(of);
    json["emulated_ep"] = emulated;
    json["cluster"] = ways.cluster;
    json["gemm"] = name(gemm);
    json["local_experts"] = shape.local();
    json["intermediate"] = shape.intermediate;
    json["shared_intermediate"] = shape.shared;
    json["best"] = best_of(rows, shape);
    if (!traces.empty()) json["traces"] = cli::to_json(traces);
    options.write(json);
  }
  return right ? 0 : 1;
}

}  // namespace

Command add_bench_moe_layer(CLI::App& app, const std::vector<std::string>& arguments) {
  const auto bench = std::make_shared<LayerBench>();
  bench->arguments = arguments;
  bench->tokens = "1,8,32,128";
  bench->options.add_tuning_to(app);
  bench->model.add_to(app, "--model", "Shape of the layer");
  app.add_option("--tokens", bench->tokens, "Tokens per rank, up to 1024")->capture_default_str();
  app.add_option("--rounds", bench->ways.rounds,
                 "Rounds of experts to measure, each from 1 to 16, or the experts of each round: 2,1:3:3:1")
      ->capture_default_str();
  app.add_option("--sms", bench->ways.sms,
                 "Processors of each part of communication in schedules with rounds; the experts have the rest (0: no "
                 "limits)")
      ->capture_default_str();
  add_cluster(app, bench->ways.cluster);
  add_choice(app, "--path", bench->ways.path, {RowPath::automatic, RowPath::slots, RowPath::ring},
             "Way of rows (automatic: both are measured, slots up to 1024 tokens)");
  app.add_option(
         "--emulate-ep", bench->emulated,
         "Ranks of a larger expert parallelism, of which each rank here has a rank's experts and tokens (0: none)")
      ->check(whole_number(0, 1024))
      ->capture_default_str();
  app.add_option("--intermediate", bench->intermediate, "Columns between an expert's GEMMs (0: the model's)")
      ->check(whole_number(0, 1 << 20))
      ->capture_default_str();
  app.add_flag("--shared", bench->ways.shared,
               "With the model's shared expert, beside the others, and in front of them in a plain layer");
  app.add_option("--shared-intermediate", bench->shared_intermediate,
                 "Columns between the shared expert's GEMMs (0: the model's)")
      ->check(whole_number(0, 1 << 20))
      ->capture_default_str();
  add_choice(app, "--gemm", bench->gemm, {GemmType::fp8, GemmType::bf16},
             "Numbers of rows and weights (fp8: e4m3 with scales per 128 columns; dispatch and the activation cast)");
  add_choice(app, "--gemm-tile", bench->tile, {GemmTile::automatic, GemmTile::rows_64, GemmTile::rows_128},
             fmt::format("Rows of a tile of the GEMMs on GPUs (automatic: 128 from {} expected rows of an expert on)",
                         kRowsForTilesOf128));
  app.add_option(
      "--trace", bench->trace,
      "Write when each part of each layer ran on each rank, for ui.perfetto.dev or chrome://tracing. A rank's "
      "times are by its own clock; events between the parts cost a little");
  app.add_option("--peo-methods", bench->ways.peo_methods,
                 "Overlap methods of DeepEP's pull request 492 to measure, of 1 to 3 (its method 4 is combine-rounds)")
      ->capture_default_str();
  app.add_flag("--no-peo", bench->ways.no_peo,
               "Leave out the schedule of DeepEP's pull request 492, which takes an exchange and a workspace for each "
               "round");
  add_rival_files(app, bench->tokens_out, bench->columns);
  bench->options.add_to(app);
  return [bench] { return bench->run(); };
}

}  // namespace weft::cli
