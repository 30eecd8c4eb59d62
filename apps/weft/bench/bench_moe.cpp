// weft bench moe: measures dispatch, combine and both for each number of tokens per rank.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "bench/bench_options.hpp"
#include "bench/columns_file.hpp"
#include "bench/csv.hpp"
#include "bench/moe_measure.hpp"
#include "bench/moe_tables.hpp"
#include "bench/tokens_file.hpp"
#include "common/commands.hpp"
#include "common/options.hpp"
#include "common/progress.hpp"
#include "common/sizes.hpp"
#include "common/tuning_note.hpp"
#include "common/values.hpp"
#include "models/info_moe.hpp"
#include "models/model_choice.hpp"
#include "models/moe_cast.hpp"
#include "ops/moe/exchange_choice.hpp"
#include "ops/moe/exchange_shape.hpp"
#include "weft/moe.hpp"
#include "workloads/moe_traffic.hpp"

namespace weft::cli {
namespace {

// Powers of two that serve decode. CPU ranks move a few GB/s, so they stop early and the run stays short.
std::vector<std::int64_t> default_moe_tokens(Device device) {
  std::vector<std::int64_t> tokens;
  const std::int64_t most = device == Device::cuda ? 1024 : 128;
  for (std::int64_t count = 1; count <= most; count *= 2) tokens.push_back(count);
  return tokens;
}

// The widest rows have this limit; an exchange knows its own.
constexpr std::int64_t kMostPayloadBytes = (std::int64_t{4} << 20) + 4096;

// Every rank's choices, as a layer.
RoutedTokens routed_tokens(const MoeTraffic& traffic, int ranks) {
  RoutedTokens routed{.tokens = traffic.token_count(), .layers = {}};
  routed.layers.emplace_back();
  for (int rank = 0; rank < ranks; ++rank) {
    const RankTokens& of = traffic.tokens(static_cast<std::uint32_t>(rank));
    routed.layers[0].push_back({of.ids, of.weights});
  }
  return routed;
}

// The fastest time of any number of blocks.
double fastest_us(const std::vector<MoeResult>& results, std::string_view operation) {
  const auto index = static_cast<std::size_t>(std::ranges::find(kMoeOperations, operation) - kMoeOperations.begin());
  double best = 0;
  for (const MoeResult& result : results)
    if (result.wrong.empty() && (best == 0 || result.us[index] < best)) best = result.us[index];
  return best;
}

struct MoeBench {
  std::vector<std::string> arguments;
  BenchOptions options;
  ModelChoice model{"deepseek-v3"};
  std::string tokens, tokens_out, columns;
  std::string blocks = "0";
  std::string row;  // empty: as usual
  Traffic traffic = Traffic::uniform;
  RowLayout layout = RowLayout::expert_masked;
  ScaleOrder scale_order = ScaleOrder::rows;
  std::uint32_t rounds = 1;
  bool apart = false, unweighted = false, weights_at_combine = false;
  std::uint32_t capacity = 0;
  std::vector<std::uint32_t> payloads;  // bytes of each
  RowPath path = RowPath::automatic;
  std::uint32_t ring_rows = 0, slot_tokens = 0;
  int exchange_blocks = 0;
  Launch launch;

  struct Measured {
    ModelShape shape;
    MoeExchangeArgs args;
    MoeExchangeArgs buffers = {};  // as the exchange's table has made them, if it has one
    Columns columns = {};
    std::vector<RoutedTokens> routed = {};  // if a file of them is asked for
    std::vector<BesideColumn> others = {};
    std::vector<MoeResult> results = {};
    std::vector<std::string> notes = {};
  };
  MoeExchangeArgs exchange_of(const ModelShape& shape, std::int64_t most_tokens) const;
  std::vector<Launch> launches() const;
  TokensShape tokens_shape(const MoeExchangeArgs& args, int ranks) const;
  void measure(Ranks& ranks, const std::vector<std::int64_t>& counts, Measured& measured) const;
  void print(const Ranks& ranks, const Measured& measured, const Crowd& crowd) const;
  void write(const Ranks& ranks, const Measured& measured) const;
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
          .payload_bytes = payloads,
          .combine_type = row == "f16" ? DataType::f16 : DataType::bf16,
          .layout = layout,
          .alignment = layout == RowLayout::expert_contiguous ? 128u : 1u,
          .capacity = capacity,
          .overflow = capacity != 0 ? Overflow::drop : Overflow::error,
          .weighted = !unweighted,
          .weights_at_combine = weights_at_combine,
          .path = path,
          .ring_rows = ring_rows,
          .slot_tokens = slot_tokens,
          .blocks = exchange_blocks};
}

std::vector<Launch> MoeBench::launches() const {
  std::vector<Launch> all;
  for (const std::int64_t number : parse_counts(blocks, "--blocks", kMostBlocks, 0)) {
    check_cluster("--blocks", number, launch.cluster);
    all.push_back({.blocks = static_cast<int>(number), .threads = launch.threads, .cluster = launch.cluster});
  }
  return all;
}

TokensShape MoeBench::tokens_shape(const MoeExchangeArgs& args, int ranks) const {
  return {.command = "bench moe",
          .routing = std::string(name(traffic)),
          .dispatched = row,
          .hidden = args.hidden,
          .experts = args.experts,
          .top_k = args.top_k,
          .ranks = ranks};
}

void MoeBench::print(const Ranks& ranks, const Measured& measured, const Crowd& crowd) const {
  const auto& [shape, args, buffers, columns_of_file, routed, others, results, notes] = measured;
  const MoeExchangeMemory memory = moe_exchange_memory(ranks.world_size(), buffers);
  fmt::print(
      "MoE of {}: {}\n{} routing, {} dispatched{}, {} layout{}, {} combined {} "
      "weights{}{}{}{}\n{}\n{}\n{}\n{}",
      shape.name, in_words(shape), name(traffic), row,
      payloads.empty() ? "" : fmt::format(" with {}", payloads_in_words(args)), name(layout),
      scale_order == ScaleOrder::columns ? ", scales in columns" : "", name(args.combine_type),
      unweighted ? "without" : "with", weights_at_combine ? " that it is given" : "",
      capacity != 0 ? fmt::format(", {} rows kept", capacity) : "",
      rounds != 1 ? fmt::format(", in {} rounds", rounds) : "", launch.cluster == 2 ? kInPairs : "",
      headline(ranks, options), crowd.warning(), moe_table(results, args).text(), kSpreadLegend);
  fmt::print(
      "dispatch, combine GB/s: all bytes that cross the links, per rank; logical: a row for each expert of a "
      "token\n");
  if (const Table rivals = moe_rival_table(results, crowd); rivals.rows() != 0)
    fmt::print("\n{}{}", rivals.text(), moe_rival_legend(results, args));
  if (!others.empty()) fmt::print("\n{}", columns_table(others, "the fastest of --blocks"));
  fmt::print("\n");
  fmt::print("Receive buffers {} + {} per bank, window {}, output {}\n{}\n", format_bytes(memory.dispatch),
             format_bytes(memory.combine), format_bytes(memory.window), format_bytes(memory.output),
             verdict_line(compared(results)));
  for (const std::string& note : notes) fmt::print("{}\n", note);
  fmt::print("{}", crowd.warning());
}

void MoeBench::write(const Ranks& ranks, const Measured& measured) const {
  const auto& [shape, args, buffers, columns_of_file, routed, others, results, notes] = measured;
  std::vector<Result> of_rivals;
  for (const MoeRival* rival : rivals_of(results)) of_rivals.push_back(rival->result);
  const Crowd crowd = crowd_of(ranks, of_rivals);
  if (options.tables_on_stdout()) print(ranks, measured, crowd);
  if (!options.csv.empty()) {
    const CsvArgs about{.ranks = ranks.world_size(), .crowd = crowd, .payload_bytes = args.payload_bytes};
    write_text(options.csv, to_csv(about, {}, results, others));
  }
  if (!options.wants_report()) return;
  auto json =
      report(run_info({"bench moe", arguments, notes, crowd}, ranks, options), describe_machine(), to_json(results));
  for (const BesideColumn& other : others) json["points"].push_back(to_json(other.point));
  json.erase("data");  // the traffic has rows of its own, no pattern of Data
  json["model"] = to_json(shape);
  json["routing"] = name(traffic);
  json["dispatched"] = row;
  json["combined"] = name(args.combine_type);
  json["layout"] = name(layout);
  json["scale_order"] = name(scale_order);
  json["weighted"] = args.weighted;
  json["weights_at_combine"] = args.weights_at_combine;
  json["capacity"] = capacity;
  json["payload_bytes"] = payloads;
  json["apart"] = apart || rounds != 1;
  json["rounds"] = rounds;
  json["path"] = name(path);
  json["exchange_blocks"] = exchange_blocks;
  json["cluster"] = launch.cluster;
  const MoeExchangeMemory memory = moe_exchange_memory(ranks.world_size(), buffers);
  json["memory"] = to_json(memory);
  json["memory"]["output_bytes"] = memory.output;
  options.write(json);
}

void MoeBench::measure(Ranks& ranks, const std::vector<std::int64_t>& counts, Measured& measured) const {
  // The exchange comes first: it rejects what it cannot serve before peers take memory.
  MoeMeasurement measurement(ranks, measured.args, {.apart = apart || rounds != 1, .rounds = rounds});
  const detail::ExchangeTuning tuning = detail::tuning_of_exchange(ranks.first().world().state(), measured.args);
  measured.buffers = detail::with_tuning(static_cast<std::uint32_t>(ranks.world_size()), measured.args, tuning.steps);
  if (!tuning.reason.empty()) measured.notes.push_back("Rows and grids are tuned by: " + tuning.reason);
  const auto rivals = open_moe_rivals(ranks, measured.args);
  for (const std::string& note : rivals->notes()) measured.notes.push_back(note);
  Progress progress(counts.size(), ranks.leader());
  for (const std::int64_t count : counts) {
    progress.step(fmt::format("{} tokens", count));
    const MoeTraffic flow(measured.shape, measured.args, traffic, ranks.world_size(),
                          static_cast<std::uint32_t>(count));
    RoutedTokens routed = routed_tokens(flow, ranks.world_size());
    const std::vector<ColumnPoint> others = measured.columns.of(routed);
    if (!tokens_out.empty()) measured.routed.push_back(std::move(routed));
    auto results = measurement.run({.traffic = flow, .samples = options.samples, .launches = launches()});
    const std::vector<MoeRival> peers = rivals->peers(flow, options.samples);
    const bool by_ring = detail::has_ring(measured.buffers) && count > detail::slots(measured.buffers);
    for (MoeResult& result : results) {
      if (!tuning.steps.empty()) result.chosen = name(by_ring ? RowPath::ring : RowPath::slots);
      result.peers = peers;
      result.bounds = rivals->bounds(flow, options.samples, result.launch.blocks);
    }
    for (const std::string& wrong : wrong_of(results)) {
      progress.clear();
      fmt::print(stderr, "WRONG: {} tokens: {}\n", count, wrong);
    }
    for (const ColumnPoint& other : others)
      measured.others.push_back({.point = other, .weft_us = fastest_us(results, other.operation)});
    std::ranges::move(results, std::back_inserter(measured.results));
  }
  progress.clear();
}

int MoeBench::run() {
  Measured measured{.shape = model.shape_with_experts(), .args = {}};
  if (row.empty()) {
    std::string note = cast_note(measured.shape);
    if (note.empty() && !payloads.empty()) note = "Rows are bf16: those that are cast have no payloads";
    row = cast_name(note.empty() ? RowCast::fp8 : RowCast::none);
    if (!note.empty()) measured.notes.push_back(std::move(note));
  }
  std::vector<std::int64_t> counts;
  if (!tokens.empty()) counts = parse_counts(tokens, "--tokens", kMostRows);
  static_cast<void>(launches());  // complains of bad numbers before anything is started
  check_outputs(
      {{"--tokens-out", tokens_out}, {"--json", options.json}, {"--csv", options.csv}, {"--plot", options.plot}});
  Ranks ranks(options.ranks_args());
  if (counts.empty()) counts = default_moe_tokens(ranks.device());
  measured.args = exchange_of(measured.shape, std::ranges::max(counts));
  if (std::string note = unused_tuning(ranks, options.tuning); !note.empty()) measured.notes.push_back(std::move(note));
  const TokensShape shape = tokens_shape(measured.args, ranks.world_size());
  measured.columns = read_columns(columns, {.shape = shape,
                                            .gpu = gpu_of(ranks),
                                            .tokens = counts,
                                            .columns = {kMoeOperations.begin(), kMoeOperations.end()}});
  for (const std::string& note : measured.columns.notes) measured.notes.push_back(note);
  measure(ranks, counts, measured);
  if (ranks.leader()) write(ranks, measured);
  if (ranks.leader() && !tokens_out.empty())
    write_text(tokens_out, tokens_file(shape, measured.shape.name, measured.routed));
  return all_correct(measured.results) ? 0 : 1;
}

}  // namespace

Command add_bench_moe(CLI::App& app, const std::vector<std::string>& arguments) {
  const auto bench = std::make_shared<MoeBench>();
  bench->arguments = arguments;
  bench->model.add_to(app, "--model", "Shape of the layer");
  auto* ep = app.add_option("--ep", bench->options.ranks, "Ranks that share the experts; the same as --ranks")
                 ->check(whole_number(1, 72));
  app.add_option("--tokens", bench->tokens,
                 "Tokens per rank, \"1,8,4096\" (default: powers of two up to 1024; on the CPU up to 128)");
  app.add_option("--blocks", bench->blocks,
                 "Blocks of each kernel, \"0,4,8,16\": each has a line, with a bound on as many blocks; 2 to one more "
                 "than a GPU's SMs, and 2 on CPU ranks (0: chosen by size)")
      ->capture_default_str();
  app.add_option(
         "--dispatch", bench->row,
         "Rows that are sent to experts (default: fp8, or bf16 with --payload or if 128 does not divide hidden)")
      ->check(CLI::IsMember({"fp8", "fp8-ue8m0", "fp8-pow2", "bf16", "f16"}));
  app.add_option("--payload", bench->payloads,
                 "Bytes of a payload that travels beside each row that is not cast, a multiple of 4; up to four times. "
                 "All of them have 4 bytes per column and 4096 more at most")
      ->check(whole_number(4, kMostPayloadBytes))
      ->allow_extra_args(false);
  add_choice(app, "--routing", bench->traffic, {Traffic::uniform, Traffic::grouped, Traffic::zipf, Traffic::hot},
             "Choice of experts: uniform: any; grouped: of some groups, like DeepSeek; zipf: expert n with weight "
             "1/n; hot: all tokens choose expert 0, too");
  add_choice(app, "--layout", bench->layout,
             {RowLayout::expert_masked, RowLayout::expert_contiguous, RowLayout::rank_major, RowLayout::rank_compact},
             "Layout of rows (contiguous experts are aligned to 128 rows)");
  add_choice(app, "--scale-order", bench->scale_order, {ScaleOrder::rows, ScaleOrder::columns},
             "Layout of the scales of cast rows (columns: as DeepGEMM reads them)");
  app.add_flag("--unweighted", bench->unweighted, "Combine adds rows without weights");
  app.add_flag("--weights-at-combine", bench->weights_at_combine,
               "Combine is given the weights, not dispatch (not with rows by rank, nor --unweighted)");
  app.add_option(
         "--capacity", bench->capacity,
         "Most rows of each expert (contiguous, rank-compact: of a rank's experts together); further rows are dropped")
      ->check(whole_number(1, 1 << 30));
  add_choice(
      app, "--path", bench->path, {RowPath::automatic, RowPath::slots, RowPath::ring},
      "Way of rows: slots for every token, up to 1024; or a ring of places. automatic: slots up to 1024 tokens; for "
      "more the ring, and slots for calls of up to 128 beside it; see --exchange-blocks and --tuning");
  app.add_option(
         "--exchange-blocks", bench->exchange_blocks,
         "Blocks for which the exchange is made: from few of them automatic takes the ring for fewer tokens, too "
         "(0: all). It does not set --blocks")
      ->check(whole_number(0, kMostBlocks));
  app.add_option("--ring-rows", bench->ring_rows,
                 "Places of a ring for each rank's rows, a power of two from 32 to 16384 (0: 4096 among all ranks, at "
                 "least 512)")
      ->check(whole_number(0, 16384));
  app.add_option("--slot-tokens", bench->slot_tokens,
                 "Tokens of each rank with slots beside a ring, which calls of so many take (0: 128, or none with "
                 "--path ring)")
      ->check(whole_number(0, 1024));
  app.add_flag("--apart", bench->apart, "Separate launches for sends and waits");
  app.add_option("--rounds", bench->rounds,
                 "Rounds of experts: a dispatch's wait and a combine's send for each, as launches of their own")
      ->check(whole_number(1, 16))
      ->capture_default_str();
  add_threads(app, bench->launch);
  add_cluster(app, bench->launch.cluster);
  add_rival_files(app, bench->tokens_out, bench->columns);
  bench->options.add_to(app);
  bench->options.add_tuning_to(app);
  ep->excludes(app.get_option("--ranks"));
  return [bench] { return bench->run(); };
}

}  // namespace weft::cli
