#include "bench/model_layers.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>

#include "bench/crossing_measure.hpp"
#include "bench/gather_measure.hpp"
#include "bench/moe_rivals.hpp"
#include "common/sizes.hpp"
#include "models/moe_cast.hpp"
#include "workloads/speed_up.hpp"

namespace weft::cli {
namespace {

// An exchange has room for every token of every rank, so it serves decode batches.
constexpr std::int64_t kMostExchangedTokens = 128;
constexpr std::int64_t kMostExchangedTokensOnCpu = 16;

using Share = std::int64_t (*)(std::int64_t tokens, const ParallelLayout& layout);

// Tokens of each rank or group, sorted, without duplicates.
std::vector<std::int64_t> shares_of(const LayerForm& form, Share share) {
  std::vector<std::int64_t> tokens;
  for (const auto batch : form.batches) tokens.push_back(share(batch, form.parallel.layout));
  std::sort(tokens.begin(), tokens.end());
  tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
  return tokens;
}

// A layer's operation for a step. Groups of one rank have no sums of their own, and no shards.
Operation operation_of(Step step, const ParallelLayout& layout) {
  const bool alone = layout.attn_tp() == 1;
  switch (step) {
    case Step::gather:
      return alone ? Operation::all_gather : Operation::gather_sums;
    case Step::scatter:
      return alone ? Operation::reduce_scatter : Operation::scatter_sums;
    case Step::attn_scatter:
      return Operation::attn_reduce_scatter;
    case Step::attn_gather:
      return Operation::attn_all_gather;
    case Step::all_reduce:
    case Step::exchange:
      break;
  }
  return Operation::all_reduce;
}

// A step and its way back, by one bench.
struct Measured {
  Step there, back;
  std::function<Point(Operation, std::int64_t tokens)> point_of;
  std::function<std::size_t(const Point&)> bytes_of;
  std::function<std::unique_ptr<Bench>(const BenchArgs&)> open;
};
void measure_both(Ranks& ranks, const LayerForm& form, const Measured& measured, LayerResults& results) {
  std::vector<Point> points;
  std::size_t most = 0;
  for (const Step step : {measured.there, measured.back}) {
    for (const auto tokens : shares_of(form, group_tokens)) {
      points.push_back(measured.point_of(operation_of(step, form.parallel.layout), tokens));
      most = std::max(most, measured.bytes_of(points.back()));
    }
  }
  const auto bench = measured.open(form.options.bench_args(most));
  std::vector<Point> all;
  for (Point& point : points) {
    point.method = bench->methods().front();
    for (const auto contender : bench->contenders(point.operation)) {
      if (is_weft(contender) ? contender != Contender::automatic : contender == Contender::nccl_grouped) continue;
      point.contender = contender;
      all.push_back(point);
    }
  }
  const std::vector<Result> more = run_points(ranks, *bench, all, form.options.samples);
  results.gathers.insert(results.gathers.end(), more.begin(), more.end());
}

void measure_gathers(Ranks& ranks, const LayerForm& form, Step there, Step back, LayerResults& results) {
  const GatherModel model{.layout = form.parallel.layout, .hidden = form.shape.hidden};
  const auto point_of = [&](Operation operation, std::int64_t tokens) {
    return gather_point(model, operation, Load::balanced, tokens, form.options.type);
  };
  measure_both(ranks, form,
               {.there = there,
                .back = back,
                .point_of = point_of,
                .bytes_of = [&](const Point& point) { return gather_bytes(model, point); },
                .open = [&](const BenchArgs& args) { return open_gather_bench(ranks, args, model); }},
               results);
}

void measure_crossings(Ranks& ranks, const LayerForm& form, LayerResults& results) {
  const CrossingForm crossing{.layout = form.parallel.layout, .hidden = form.shape.hidden};
  const auto point_of = [&](Operation operation, std::int64_t tokens) {
    return Point{.operation = operation,
                 .count = static_cast<std::size_t>(tokens * crossing.hidden * crossing.layout.dp),
                 .rows = tokens,
                 .hidden = crossing.hidden,
                 .type = form.options.type};
  };
  measure_both(ranks, form,
               {.there = Step::gather,
                .back = Step::scatter,
                .point_of = point_of,
                .bytes_of = [&](const Point& point) { return crossing_bytes(crossing, point); },
                .open = [&](const BenchArgs& args) { return open_crossing_bench(ranks, args, crossing); }},
               results);
}

void measure_exchanges(Ranks& ranks, const LayerForm& form, LayerResults& results) {
  const ModelShape& shape = form.shape;
  const BenchOptions& options = form.options;
  std::vector<std::int64_t> tokens = shares_of(form, rank_tokens);
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
  const auto rivals = open_moe_rivals(ranks, args);
  for (const auto count : tokens) {
    const MoeTraffic flow(shape, args, Traffic::uniform, ranks.world_size(), static_cast<std::uint32_t>(count));
    results.exchanges.push_back(measurement.run({.traffic = flow, .samples = options.samples}).front());
    results.exchanges.back().peers = rivals->peers(flow, options.samples);
    const std::string& wrong = results.exchanges.back().wrong;
    if (!wrong.empty()) fmt::print(stderr, "WRONG: exchange of {} tokens: {}\n", count, wrong);
  }
}

// The time of a right result, and that of its best peer.
void note_times(StepTimes& times, Step step, const std::vector<Result>& results, const Point& point) {
  const auto at = static_cast<std::size_t>(step);
  const Result* const ours = in_row(results, point, Contender::automatic);
  if (ours == nullptr) return;
  if (ours->verdict == Verdict::ok) times.weft[at] = ours->us;
  if (const Result* const peer = best_peer(results, ours->point)) times.peer[at] = peer->us;
}

// The fastest right result of the peers for a dispatch or a combine.
std::optional<double> best_of(const std::vector<MoeRival>& peers, std::size_t operation) {
  std::optional<double> best;
  for (const MoeRival& peer : peers) {
    if (peer.operation != operation || peer.result.verdict != Verdict::ok) continue;
    if (!best || peer.result.us < *best) best = peer.result.us;
  }
  return best;
}

}  // namespace

LayerResults measure_layers(Ranks& ranks, const LayerForm& form) {
  LayerResults results;
  if (ranks.world_size() == 1) return results;
  const std::vector<ModelWay> ways = ways_of(form.shape, form.parallel);
  const bool alone = form.parallel.layout.attn_tp() == 1;
  if (needs(ways, Step::gather) && alone) measure_gathers(ranks, form, Step::gather, Step::scatter, results);
  if (needs(ways, Step::gather) && !alone) measure_crossings(ranks, form, results);
  if (needs(ways, Step::attn_gather)) measure_gathers(ranks, form, Step::attn_scatter, Step::attn_gather, results);
  try {
    if (form.shape.zero_experts != 0) require_experts("model", form.shape);
    if (needs(ways, Step::exchange)) measure_exchanges(ranks, form, results);
  } catch (const Error& error) {
    if (!is_rejection(error)) throw;  // exchanges do not serve this shape
    results.notes.push_back(fmt::format("Dispatch and combine: {}", error.what()));
  }
  return results;
}

StepTimes step_times(const std::vector<Result>& all_reduces, const LayerResults& layers, const ParallelLayout& layout,
                     std::int64_t tokens) {
  StepTimes times;
  for (const Result& result : all_reduces) {
    if (result.point.rows == tokens) note_times(times, Step::all_reduce, all_reduces, result.point);
  }
  for (const Step step : {Step::gather, Step::scatter, Step::attn_scatter, Step::attn_gather}) {
    for (const Result& result : layers.gathers) {
      const Point& point = result.point;
      if (point.operation == operation_of(step, layout) && point.rows == group_tokens(tokens, layout))
        note_times(times, step, layers.gathers, point);
    }
  }
  for (const MoeResult& exchange : layers.exchanges) {
    if (exchange.tokens != rank_tokens(tokens, layout)) continue;
    const auto at = static_cast<std::size_t>(Step::exchange);
    if (exchange.wrong.empty()) times.weft[at] = exchange.us[2];
    const auto there = best_of(exchange.peers, 0), back = best_of(exchange.peers, 1);
    if (there && back) times.peer[at] = *there + *back;
  }
  return times;
}

Table layer_table(const ModelShape& shape, const LayerResults& results, const Crowd& crowd) {
  Table table({"operation", "tokens", "size", "µs", "GB/s", "peer", "peer µs", "ratio", "µs per pass"}, 3);
  const auto pass = [](double us, std::int64_t layers) {
    return fmt::format("{:.0f}", us * static_cast<double>(layers));
  };
  for (const auto& ours : results.gathers) {
    const Point& point = ours.point;
    if (point.contender != Contender::automatic) continue;
    const Result* peer = best_peer(results.gathers, point);
    const bool ok = ours.verdict == Verdict::ok, counted = !is_in_groups(point.operation);
    table.add({std::string(name(point.operation)), std::to_string(point.rows), format_bytes(point.bytes()), cell(&ours),
               ok ? fmt::format("{:.2f}", ours.gb_per_s()) : "-",
               peer != nullptr ? std::string(name(peer->point.contender)) : "-", cell(peer),
               cell(speed_up(ours, peer, crowd)), ok && counted ? pass(ours.us, shape.gathers) : "-"});
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
