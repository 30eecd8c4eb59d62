#include "bench/model_layers.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "bench/gather_measure.hpp"
#include "common/sizes.hpp"
#include "models/moe_cast.hpp"
#include "workloads/speed_up.hpp"

namespace weft::cli {
namespace {

// An exchange has room for every token of every rank, so it serves decode batches.
constexpr std::int64_t kMostExchangedTokens = 128;
constexpr std::int64_t kMostExchangedTokensOnCpu = 16;

// Tokens of each rank, sorted, without duplicates.
std::vector<std::int64_t> per_rank(const std::vector<std::int64_t>& batches, int ranks) {
  std::vector<std::int64_t> tokens;
  for (const auto batch : batches) tokens.push_back((batch + ranks - 1) / ranks);
  std::sort(tokens.begin(), tokens.end());
  tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
  return tokens;
}

void measure_gathers(Ranks& ranks, const ModelShape& shape, const std::vector<std::int64_t>& tokens,
                     const BenchOptions& options, LayerResults& results) {
  const GatherModel model{.layout = {.tp = ranks.world_size(), .dp = ranks.world_size()}, .hidden = shape.hidden};
  const Point largest = gather_point(model, Operation::all_gather, Load::balanced, tokens.back(), options.type);
  const auto bench = open_gather_bench(ranks, options.bench_args(gather_bytes(model, largest)), model);
  std::vector<Point> points;
  for (const auto operation : {Operation::all_gather, Operation::reduce_scatter}) {
    for (const auto count : tokens) {
      Point point = gather_point(model, operation, Load::balanced, count, options.type);
      point.method = bench->methods().front();
      for (const auto contender : bench->contenders(operation)) {
        point.contender = contender;
        points.push_back(point);
      }
    }
  }
  results.gathers = run_points(ranks, *bench, points, options.samples);
}

void measure_exchanges(Ranks& ranks, const ModelShape& shape, std::vector<std::int64_t> tokens,
                       const BenchOptions& options, LayerResults& results) {
  const auto most = ranks.device() == Device::cuda ? kMostExchangedTokens : kMostExchangedTokensOnCpu;
  if (tokens.back() > most) {
    results.notes.push_back(
        fmt::format("Dispatch and combine: at most {} tokens per rank here, so not measured with {}", most,
                    fmt::join(std::ranges::upper_bound(tokens, most), tokens.end(), ", ")));
  }
  std::erase_if(tokens, [&](std::int64_t count) { return count > most; });
  if (tokens.empty()) return;
  const MoeExchangeArgs args{.tokens = static_cast<std::uint32_t>(tokens.back()),
                             .hidden = static_cast<std::uint32_t>(shape.row_width()),
                             .experts = static_cast<std::uint32_t>(shape.num_experts),
                             .top_k = static_cast<std::uint32_t>(shape.top_k),
                             .cast = usual_cast(shape)};
  if (const std::string note = cast_note(shape); !note.empty()) results.notes.push_back(note);
  MoeMeasurement measurement(ranks, args);
  for (const auto count : tokens) {
    const MoeTraffic flow(shape, args, Traffic::uniform, ranks.world_size(), static_cast<std::uint32_t>(count));
    results.exchanges.push_back(measurement.run({.traffic = flow, .samples = options.samples}).front());
    const std::string& wrong = results.exchanges.back().wrong;
    if (!wrong.empty()) fmt::print(stderr, "WRONG: exchange of {} tokens: {}\n", count, wrong);
  }
}

}  // namespace

LayerResults measure_layers(Ranks& ranks, const ModelShape& shape, const std::vector<std::int64_t>& batches,
                            const BenchOptions& options) {
  LayerResults results;
  if (ranks.world_size() == 1) return results;
  const auto tokens = per_rank(batches, ranks.world_size());
  measure_gathers(ranks, shape, tokens, options, results);
  try {
    if (shape.zero_experts != 0) require_experts("model", shape);
    if (shape.has_experts()) measure_exchanges(ranks, shape, tokens, options, results);
  } catch (const Error& error) {
    if (!is_rejection(error)) throw;  // exchanges do not serve this shape
    results.notes.push_back(fmt::format("Dispatch and combine: {}", error.what()));
  }
  return results;
}

Table layer_table(const ModelShape& shape, const LayerResults& results, const Crowd& crowd) {
  Table table({"operation", "tokens per rank", "size", "µs", "GB/s", "peer", "peer µs", "ratio", "µs per pass"}, 3);
  const auto pass = [](double us, std::int64_t layers) {
    return fmt::format("{:.0f}", us * static_cast<double>(layers));
  };
  for (const auto& ours : results.gathers) {
    const Point& point = ours.point;
    if (point.contender != Contender::automatic) continue;
    const Result* peer = best_peer(results.gathers, point);
    const bool ok = ours.verdict == Verdict::ok;
    table.add({std::string(name(point.operation)), std::to_string(point.rows), format_bytes(point.bytes()), cell(&ours),
               ok ? fmt::format("{:.2f}", ours.gb_per_s()) : "-",
               peer != nullptr ? std::string(name(peer->point.contender)) : "-", cell(peer),
               cell(speed_up(ours, peer, crowd)), ok ? pass(ours.us, shape.gathers) : "-"});
  }
  for (const auto& exchange : results.exchanges) {
    const bool ok = exchange.wrong.empty();
    table.add({"dispatch, combine", std::to_string(exchange.tokens), "-",
               ok ? cell(figure_of(exchange.samples[2])) : "WRONG", "-", "-", "-", "-",
               ok ? pass(exchange.us[2], shape.moe_layers) : "-"});
  }
  return table;
}

}  // namespace weft::cli
