#include "tune/token_options.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "base/limits.hpp"
#include "common/options.hpp"
#include "common/sizes.hpp"
#include "common/values.hpp"
#include "models/moe_cast.hpp"
#include "ops/moe/exchange.hpp"
#include "tune/exchange_search.hpp"
#include "tune/layer_search.hpp"
#include "weft/error.hpp"

namespace weft::cli {
namespace {

// CPU ranks move a few GB/s, so their exchanges have fewer tokens.
const char* usual_tokens(TuneChoice choice, Device device, bool quick) {
  if (choice != TuneChoice::exchange) return quick ? "8,64,256" : "1,8,16,32,64,128,192,256";
  if (device == Device::cpu) return quick ? "8,64" : "1,8,32,64,128";
  return quick ? "8,128,1024" : "1,8,32,64,128,256,512,1024";
}

std::vector<std::uint32_t> ascending_tokens(const std::string& text, std::int64_t most) {
  std::vector<std::uint32_t> all;
  for (const std::int64_t count : parse_counts(text, "--tokens", most))
    all.push_back(static_cast<std::uint32_t>(count));
  std::ranges::sort(all);
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

// Exchanges may have more tokens than layers that are tuned with them.
std::int64_t most_tokens(TuneChoice choice) {
  return choice == TuneChoice::exchange ? detail::kMaxExchangeTokens : 1024;
}

}  // namespace

void TokenOptions::add_to(CLI::App& app) {
  model.add_to(app, "--model", "Shape of layers and exchanges of experts to tune");
  app.add_option("--tokens", tokens,
                 "Tokens per rank to measure, of layers up to 1024 (default: 1 to 256; exchanges 1 to 1024, and 1 to "
                 "128 on CPU ranks)");
  add_choice(app, "--layout", layout,
             {RowLayout::expert_masked, RowLayout::expert_contiguous, RowLayout::rank_major, RowLayout::rank_compact},
             "Layout of an exchange's rows (contiguous experts are aligned to 128 rows)");
  app.add_option("--dispatch", row,
                 "Rows that an exchange sends to experts (default: fp8, or bf16 if 128 does not divide hidden)")
      ->check(CLI::IsMember({"fp8", "fp8-ue8m0", "fp8-pow2", "bf16"}));
  app.add_option("--intermediate", intermediate, "Columns between an expert's GEMMs (0: the model's)")
      ->check(whole_number(0, 1 << 20))
      ->capture_default_str();
  add_choice(app, "--path", path, {RowPath::automatic, RowPath::slots, RowPath::ring},
             "Way of a layer's rows (automatic: a table for each, slots up to 1024 tokens)");
  app.add_option("--emulate-ep", emulated,
                 "Ranks of a larger expert parallelism, for whose layers a table is made from a rank's share of the "
                 "work (0: none)")
      ->check(whole_number(0, detail::kMaxRanks))
      ->capture_default_str();
}

void TokenOptions::check(const SubjectArgs& subjects) const {
  const TuneChoice choice = subjects.operations;
  if (is_by_tokens(choice) && !model.given())
    throw Error(Errc::invalid_argument,
                fmt::format("--operation {}: --model or --config must say which", name(choice)));
  const bool of_layer = intermediate != 0 || path != RowPath::automatic;
  if (!model.given() && (!tokens.empty() || of_layer || !row.empty() || layout != RowLayout::expert_masked))
    throw Error(Errc::invalid_argument,
                "--tokens, --intermediate, --path, --layout, --dispatch: are for layers and exchanges, and no --model "
                "or --config is given");
  if (model.given() && choice != TuneChoice::all && !is_by_tokens(choice))
    throw Error(Errc::invalid_argument,
                fmt::format("--model, --config: are for layers and exchanges, and --operation is {}", name(choice)));
  if (choice == TuneChoice::exchange && of_layer)
    throw Error(Errc::invalid_argument, fmt::format("--{}: is for layers, and --operation is exchange",
                                                    intermediate != 0 ? "intermediate" : "path"));
  if (choice != TuneChoice::layer && emulated != 0)
    throw Error(Errc::invalid_argument,
                fmt::format("--emulate-ep: is for layers alone, and --operation is {}", name(choice)));
  if (choice == TuneChoice::layer && (!row.empty() || layout != RowLayout::expert_masked))
    throw Error(Errc::invalid_argument, "--layout, --dispatch: are for exchanges, and --operation is layer");
  if (!tokens.empty()) ascending_tokens(tokens, most_tokens(choice));
}

TokenSearches TokenOptions::open(Ranks& ranks, const SubjectArgs& subjects) const {
  TokenSearches all;
  const auto asked = [&](TuneChoice choice) {
    return model.given() && (subjects.operations == TuneChoice::all || subjects.operations == choice);
  };
  const auto tokens_of = [&](TuneChoice choice) {
    const std::string text = tokens.empty() ? usual_tokens(choice, ranks.device(), subjects.quick) : tokens;
    return ascending_tokens(text, most_tokens(subjects.operations));
  };
  if (asked(TuneChoice::layer))
    all = open_layer_searches(ranks, {.model = model.shape_with_experts(),
                                      .intermediate = intermediate,
                                      .emulated = emulated,
                                      .path = path,
                                      .tokens = tokens_of(TuneChoice::layer),
                                      .quick = subjects.quick,
                                      .samples = subjects.samples});
  if (asked(TuneChoice::exchange)) {
    const ModelShape shape = model.shape_with_experts();
    all.push_back(std::make_unique<ExchangeSearch>(
        ranks, ExchangeSearch::Args{.model = shape,
                                    .layout = layout,
                                    .cast = row.empty() ? usual_cast(shape) : cast_of(row),
                                    .tokens = tokens_of(TuneChoice::exchange),
                                    .quick = subjects.quick,
                                    .samples = subjects.samples}));
  }
  return all;
}

}  // namespace weft::cli
