// weft bench moe: measures dispatch, combine and both for each number of tokens per rank.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "bench/bench_options.hpp"
#include "bench/csv.hpp"
#include "bench/moe_measure.hpp"
#include "common/commands.hpp"
#include "common/options.hpp"
#include "common/progress.hpp"
#include "common/sizes.hpp"
#include "common/values.hpp"
#include "models/info_moe.hpp"
#include "models/model_choice.hpp"
#include "models/moe_cast.hpp"
#include "ops/moe/exchange.hpp"
#include "weft/moe.hpp"
#include "workloads/moe_traffic.hpp"

namespace weft::cli {
namespace {

// Powers of two. CPU ranks move a few GB/s, so they stop early and the run stays short.
std::vector<std::int64_t> default_moe_tokens(Device device) {
  std::vector<std::int64_t> tokens;
  const std::int64_t most = device == Device::cuda ? detail::kMaxExchangeTokens : 128;
  for (std::int64_t count = 1; count <= most; count *= 2) tokens.push_back(count);
  return tokens;
}

struct MoeBench {
  std::vector<std::string> arguments;
  BenchOptions options;
  ModelChoice model{"deepseek-v3"};
  std::string tokens;
  std::string row;  // empty: as usual
  Traffic traffic = Traffic::uniform;
  RowLayout layout = RowLayout::expert_masked;
  ScaleOrder scale_order = ScaleOrder::rows;
  bool apart = false, unweighted = false;
  std::uint32_t capacity = 0;
  Launch launch;

  MoeExchangeArgs exchange_of(const ModelShape& shape, std::int64_t most_tokens) const;
  Table table_of(const std::vector<MoeResult>& results, const MoeExchangeArgs& args) const;
  void write(const Ranks& ranks, const ModelShape& shape, const MoeExchangeArgs& args,
             const std::vector<MoeResult>& results) const;
  int run();
};

MoeExchangeArgs MoeBench::exchange_of(const ModelShape& shape, std::int64_t most_tokens) const {
  return {.tokens = static_cast<std::uint32_t>(most_tokens),
          .hidden = static_cast<std::uint32_t>(shape.row_width()),
          .experts = static_cast<std::uint32_t>(shape.num_experts),
          .top_k = static_cast<std::uint32_t>(shape.top_k),
          .type = row == "f16" ? RowType::f16 : RowType::bf16,
          .cast = cast_of(row),
          .scale_order = scale_order,
          .combine_type = row == "f16" ? DataType::f16 : DataType::bf16,
          .layout = layout,
          .alignment = layout == RowLayout::expert_contiguous ? 128u : 1u,
          .capacity = capacity,
          .overflow = capacity != 0 ? Overflow::drop : Overflow::error,
          .weighted = !unweighted};
}

Table MoeBench::table_of(const std::vector<MoeResult>& results, const MoeExchangeArgs& args) const {
  const detail::OutputRow sent = detail::output_row(args);
  const double logical = static_cast<double>(sent.bytes + sent.scale_bytes) + args.hidden * 2.0;
  Table table({"tokens", "dispatch µs", "combine µs", "both µs", "dispatch GB/s", "combine GB/s", "logical GB/s"});
  for (const MoeResult& result : results) {
    const auto rate = [](double bytes, double us) { return fmt::format("{:.1f}", bytes / us / 1e3); };
    const auto time = [&](std::size_t i) {
      return result.wrong.empty() ? cell(figure_of(result.samples[i])) : std::string("WRONG");
    };
    table.add({fmt::format("{}", result.tokens), time(0), time(1), time(2), rate(result.wire_bytes[0], result.us[0]),
               rate(result.wire_bytes[1], result.us[1]), rate(result.logical_rows * logical, result.us[2])});
  }
  return table;
}

void MoeBench::write(const Ranks& ranks, const ModelShape& shape, const MoeExchangeArgs& args,
                     const std::vector<MoeResult>& results) const {
  const Table table = table_of(results, args);
  const MoeExchangeMemory memory = moe_exchange_memory(ranks.world_size(), args);
  const Crowd crowd = crowd_of(ranks, {});
  if (options.tables_on_stdout()) {
    fmt::print(
        "MoE of {}: {}\n{} routing, {} dispatched, {} layout{}, {} combined {} "
        "weights{}\n{}\n{}\n{}\n{}",
        shape.name, in_words(shape), name(traffic), row, name(layout),
        scale_order == ScaleOrder::columns ? ", scales in columns" : "", name(args.combine_type),
        unweighted ? "without" : "with", capacity != 0 ? fmt::format(", {} rows kept", capacity) : "", headline(ranks),
        crowd.warning(), table.text(), kSpreadLegend);
    fmt::print(
        "dispatch, combine GB/s: all bytes that cross the links, per rank; logical: a row for each expert of a "
        "token\n");
    fmt::print("Receive buffers {} + {} per bank, window {}, output {}\n{}\n{}", format_bytes(memory.dispatch),
               format_bytes(memory.combine), format_bytes(memory.window), format_bytes(memory.output),
               verdict_line(compared(results)), crowd.warning());
  }
  if (!options.csv.empty()) write_text(options.csv, to_csv({.ranks = ranks.world_size(), .crowd = crowd}, {}, results));
  if (!options.wants_report()) return;
  auto json =
      report(run_info({"bench moe", arguments, {}, crowd}, ranks, options), describe_machine(), to_json(results));
  json.erase("data");  // the traffic has rows of its own, no pattern of Data
  json["model"] = to_json(shape);
  json["routing"] = name(traffic);
  json["dispatched"] = row;
  json["combined"] = name(args.combine_type);
  json["layout"] = name(layout);
  json["scale_order"] = name(scale_order);
  json["weighted"] = args.weighted;
  json["capacity"] = capacity;
  json["apart"] = apart;
  json["memory"] = to_json(memory);
  json["memory"]["output_bytes"] = memory.output;
  options.write(json);
}

int MoeBench::run() {
  const ModelShape shape = model.shape_with_experts();
  const std::string note = row.empty() ? cast_note(shape) : "";
  if (row.empty()) row = cast_name(usual_cast(shape));
  std::vector<std::int64_t> counts;
  if (!tokens.empty()) counts = parse_counts(tokens, "--tokens", detail::kMaxExchangeTokens);
  Ranks ranks(options.ranks_args());
  if (counts.empty()) counts = default_moe_tokens(ranks.device());
  const MoeExchangeArgs args = exchange_of(shape, std::ranges::max(counts));
  std::vector<MoeResult> results;
  MoeMeasurement measurement(ranks, args, apart);
  Progress progress(counts.size(), ranks.leader());
  for (const std::int64_t count : counts) {
    progress.step(fmt::format("{} tokens", count));
    const auto number = static_cast<std::uint32_t>(count);
    const MoeTraffic flow(shape, args, traffic, ranks.world_size(), number);
    MoeResult result = measurement.run(flow, number, options.samples, launch);
    if (!result.wrong.empty()) {
      progress.clear();
      fmt::print(stderr, "WRONG: {} tokens: {}\n", count, result.wrong);
    }
    results.push_back(std::move(result));
  }
  progress.clear();
  if (ranks.leader()) write(ranks, shape, args, results);
  if (ranks.leader() && options.tables_on_stdout() && !note.empty()) fmt::print("{}\n", note);
  return all_correct(results) ? 0 : 1;
}

}  // namespace

Command add_bench_moe(CLI::App& app, const std::vector<std::string>& arguments) {
  const auto bench = std::make_shared<MoeBench>();
  bench->arguments = arguments;
  bench->model.add_to(app, "--model", "Shape of the layer");
  auto* ep = app.add_option("--ep", bench->options.ranks, "Ranks that share the experts; the same as --ranks")
                 ->check(whole_number(1, 72));
  app.add_option("--tokens", bench->tokens,
                 "Tokens per rank, \"1,8,128\" (default: powers of two up to 1024; on the CPU up to 128)");
  app.add_option("--dispatch", bench->row,
                 "Rows that are sent to experts (default: fp8, or bf16 if 128 does not divide hidden)")
      ->check(CLI::IsMember({"fp8", "fp8-ue8m0", "fp8-pow2", "bf16", "f16"}));
  add_choice(app, "--routing", bench->traffic, {Traffic::uniform, Traffic::grouped, Traffic::zipf, Traffic::hot},
             "Choice of experts: uniform: any; grouped: of some groups, like DeepSeek; zipf: expert n with weight "
             "1/n; hot: all tokens choose expert 0, too");
  add_choice(app, "--layout", bench->layout,
             {RowLayout::expert_masked, RowLayout::expert_contiguous, RowLayout::rank_major},
             "Layout of rows (contiguous experts are aligned to 128 rows)");
  add_choice(app, "--scale-order", bench->scale_order, {ScaleOrder::rows, ScaleOrder::columns},
             "Layout of the scales of cast rows (columns: as DeepGEMM reads them)");
  app.add_flag("--unweighted", bench->unweighted, "Combine adds rows without weights");
  app.add_option("--capacity", bench->capacity,
                 "Most rows of each expert (contiguous: of a rank's experts together); further rows are dropped")
      ->check(whole_number(1, 1 << 30));
  app.add_flag("--apart", bench->apart, "Separate launches for sends and waits");
  add_launch(app, bench->launch, "each kernel");
  bench->options.add_to(app);
  ep->excludes(app.get_option("--ranks"));
  return [bench] { return bench->run(); };
}

}  // namespace weft::cli
