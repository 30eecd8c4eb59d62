// weft bench moe: dispatch, combine and both by tokens per rank.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "bench_options.hpp"
#include "commands.hpp"
#include "core/exchange.hpp"
#include "moe_measure.hpp"
#include "moe_traffic.hpp"
#include "options.hpp"
#include "progress.hpp"
#include "sizes.hpp"
#include "weft/moe.hpp"

namespace weft::cli {
namespace {

struct MoeBench {
  std::vector<std::string> arguments;
  BenchOptions options;
  std::string model = "deepseek-v3";
  std::string config;
  std::string tokens = "1,2,4,8,16,32,64,128";
  std::string row = "fp8";
  Traffic traffic = Traffic::uniform;
  RowLayout layout = RowLayout::expert_masked;
  bool apart = false;
  int blocks = 0, threads = 0;

  Table table_of(const std::vector<MoeResult>& results, const ExchangeArgs& args) const;
  void write(const Ranks& ranks, const ModelShape& shape, const ExchangeArgs& args,
             const std::vector<MoeResult>& results) const;
  int run() const;
};

Table MoeBench::table_of(const std::vector<MoeResult>& results, const ExchangeArgs& args) const {
  const double sent = args.cast == RowCast::none ? args.hidden * 2.0 : args.hidden + args.hidden / 32.0;
  Table table({"tokens", "dispatch µs", "combine µs", "both µs", "dispatch GB/s", "combine GB/s", "logical GB/s"});
  for (const MoeResult& result : results) {
    const auto rate = [](double bytes, double us) { return fmt::format("{:.1f}", bytes / us / 1e3); };
    const auto time = [&](int i) { return result.wrong.empty() ? microseconds(result.us[i]) : std::string("WRONG"); };
    table.add({fmt::format("{}", result.tokens), time(0), time(1), time(2), rate(result.wire_rows * sent, result.us[0]),
               rate(result.wire_rows * args.hidden * 2.0, result.us[1]),
               rate(result.logical_rows * (sent + args.hidden * 2.0), result.us[2])});
  }
  return table;
}

void MoeBench::write(const Ranks& ranks, const ModelShape& shape, const ExchangeArgs& args,
                     const std::vector<MoeResult>& results) const {
  const Table table = table_of(results, args);
  if (options.tables_on_stdout()) {
    const ExchangeMemory memory = exchange_memory(ranks.world_size(), args);
    fmt::print(
        "MoE of {}: hidden {}, {} experts, top {}, {} routing, {} dispatched, {} layout, bf16 combined with "
        "weights\n{}\n"
        "\n{}\n",
        shape.name, shape.hidden, shape.num_experts, shape.top_k, name(traffic), cast_name(args.cast), name(layout),
        headline(ranks), table.text());
    fmt::print("Receive buffers {} + {} per generation, window {}, output {}\n{}\n", format_bytes(memory.dispatch),
               format_bytes(memory.combine), format_bytes(memory.window), format_bytes(memory.output),
               verdict_line(all_correct(results)));
  }
  if (!options.csv.empty()) write_text(options.csv, table.csv());
  if (!options.wants_report()) return;
  auto json = report(run_info("bench moe", arguments, ranks, options, {}), describe_machine(), to_json(results));
  json["model"] = to_json(shape);
  json["routing"] = name(traffic);
  json["dispatched"] = cast_name(args.cast);
  json["layout"] = name(layout);
  json["apart"] = apart;
  options.write(json);
}

int MoeBench::run() const {
  const ModelShape shape = config.empty() ? preset(model) : shape_from_config(config);
  if (!shape.has_experts()) throw Error(Errc::invalid_argument, fmt::format("--model {}: has no experts", shape.name));
  const auto counts = parse_counts(tokens, "--tokens", detail::kMaxExchangeTokens);
  const ExchangeArgs args{.tokens = static_cast<std::uint32_t>(*std::max_element(counts.begin(), counts.end())),
                          .hidden = static_cast<std::uint32_t>(shape.hidden),
                          .experts = static_cast<std::uint32_t>(shape.num_experts),
                          .top_k = static_cast<std::uint32_t>(shape.top_k),
                          .cast = row == "fp8" ? RowCast::fp8 : RowCast::none,
                          .layout = layout,
                          .alignment = layout == RowLayout::expert_contiguous ? 128u : 1u};
  Ranks ranks(options.ranks_args());
  std::vector<MoeResult> results;
  MoeMeasurement measurement(ranks, args, apart);
  Progress progress(counts.size(), ranks.leader());
  for (const std::int64_t count : counts) {
    progress.step(fmt::format("{} tokens", count));
    const auto number = static_cast<std::uint32_t>(count);
    const MoeTraffic flow(shape, args, traffic, ranks.world_size(), number);
    MoeResult result = measurement.run(flow, number, options.samples, {.blocks = blocks, .threads = threads});
    if (!result.wrong.empty()) {
      progress.clear();
      fmt::print(stderr, "WRONG: {} tokens: {}\n", count, result.wrong);
    }
    results.push_back(std::move(result));
  }
  progress.clear();
  if (ranks.leader()) write(ranks, shape, args, results);
  return all_correct(results) ? 0 : 1;
}

}  // namespace

Command add_bench_moe(CLI::App& app, const std::vector<std::string>& arguments) {
  const auto bench = std::make_shared<MoeBench>();
  bench->arguments = arguments;
  app.add_option("--model", bench->model, "Shape of the layer")->check(CLI::IsMember(preset_names()));
  app.add_option("--config", bench->config, "… or a Hugging Face config.json");
  app.add_option("--ep", bench->options.ranks, "Ranks that share the experts; the same as --ranks");
  app.add_option("--tokens", bench->tokens, "Tokens per rank, \"1,8,128\"")->capture_default_str();
  app.add_option("--dispatch", bench->row, "Rows on their way to the experts")
      ->check(CLI::IsMember({"fp8", "bf16"}))
      ->capture_default_str();
  add_choice(app, "--routing", bench->traffic, {Traffic::uniform, Traffic::grouped, Traffic::zipf, Traffic::hot},
             "Who chooses which experts");
  add_choice(app, "--layout", bench->layout,
             {RowLayout::expert_masked, RowLayout::expert_contiguous, RowLayout::rank_major},
             "Where rows go (contiguous experts are aligned to 128 rows)");
  app.add_flag("--apart", bench->apart, "Sends and waits in launches of their own");
  app.add_option("--blocks", bench->blocks, "Blocks of each kernel (default: chosen by tokens)");
  app.add_option("--threads", bench->threads, "Threads per block");
  bench->options.add_to(app);
  return [bench] { return bench->run(); };
}

}  // namespace weft::cli
