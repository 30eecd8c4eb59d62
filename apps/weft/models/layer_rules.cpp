#include "models/layer_rules.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <string_view>

namespace weft::cli {
namespace {

using Layers = std::vector<bool>;

constexpr std::int64_t kMostStep = std::numeric_limits<std::int32_t>::max();

// The field must be present.
std::int64_t given(ConfigFields& fields, const char* key, ConfigFields::Limits limits) {
  return fields.number(*fields.get(key), key, limits);
}

template <class Has>
Layers layers_where(std::int64_t layers, const Has& has) {
  Layers out;
  for (std::int64_t layer = 0; layer < layers; ++layer) out.push_back(has(layer));
  return out;
}

Layers with_numbers(const std::vector<std::int64_t>& numbers, std::int64_t layers) {
  Layers out(static_cast<std::size_t>(layers), false);
  for (const std::int64_t number : numbers) out[static_cast<std::size_t>(number)] = true;
  return out;
}

Layers listed(ConfigFields& fields, const char* key, std::int64_t layers) {
  return with_numbers(fields.numbers(key, {0, layers - 1}), layers);
}

Layers not_listed(ConfigFields& fields, const char* key, std::int64_t layers) {
  Layers out = listed(fields, key, layers);
  out.flip();
  return out;
}

// A text such as "4,5,6".
Layers listed_in_text(ConfigFields& fields, const char* key, std::int64_t layers) {
  if (!fields.get(key)->is_string()) return listed(fields, key, layers);
  const std::string text = fields.text(key);
  std::vector<std::int64_t> numbers;
  for (const char *at = text.data(), *const end = at + text.size(); at != end;) {
    if (*at == ' ') {
      ++at;
      continue;
    }
    std::int64_t number = 0;
    const auto [rest, problem] = std::from_chars(at, end, number);
    const bool ends = rest == end || *rest == ',';
    if (problem != std::errc() || !ends || number < 0 || number >= layers)
      throw fields.bad(key, text,
                       fmt::format("numbers of layers between 0 and {}, with commas between them", layers - 1));
    numbers.push_back(number);
    at = rest == end ? end : rest + 1;
  }
  return with_numbers(numbers, layers);
}

void check_length(ConfigFields& fields, const char* key, std::size_t length, std::int64_t layers) {
  if (length != static_cast<std::size_t>(layers))
    throw fields.error(fmt::format("field \"{}\" has {} entries, and there are {} layers", key, length, layers));
}

// A list of "dense" and "sparse".
Layers of_kinds(ConfigFields& fields, const char* key, std::int64_t layers) {
  const auto kinds = fields.texts(key);
  check_length(fields, key, kinds.size(), layers);
  for (const auto& kind : kinds)
    if (kind != "dense" && kind != "sparse") throw fields.bad(key, kind, "dense or sparse");
  return layers_where(layers, [&](std::int64_t layer) { return kinds[static_cast<std::size_t>(layer)] == "sparse"; });
}

// A list of 0 and 1.
Layers flagged(ConfigFields& fields, const char* key, std::int64_t layers) {
  const auto flags = fields.numbers(key, {0, 1});
  check_length(fields, key, flags.size(), layers);
  return layers_where(layers, [&](std::int64_t layer) { return flags[static_cast<std::size_t>(layer)] == 1; });
}

// All layers except the first ones.
Layers behind(ConfigFields& fields, const char* key, std::int64_t layers) {
  const std::int64_t first = given(fields, key, {0, layers});
  return layers_where(layers, [&](std::int64_t layer) { return layer >= first; });
}

// Every n-th layer, beginning with layer 0.
Layers every_from_first(ConfigFields& fields, const char* key, std::int64_t layers) {
  const std::int64_t step = given(fields, key, {1, kMostStep});
  return layers_where(layers, [&](std::int64_t layer) { return layer % step == 0; });
}

// Every n-th layer, beginning with layer n - 1. 0: none.
Layers every(ConfigFields& fields, const char* key, std::int64_t layers) {
  const std::int64_t step = given(fields, key, {0, kMostStep});
  return layers_where(layers, [&](std::int64_t layer) { return step != 0 && (layer + 1) % step == 0; });
}

// ERNIE models with vision have a number for text and one for images. A layer of either kind has experts.
std::vector<std::int64_t> one_or_more(ConfigFields& fields, const char* key, ConfigFields::Limits limits) {
  if (fields.get(key)->is_array()) {
    auto numbers = fields.numbers(key, limits);
    if (!numbers.empty()) return numbers;
  }
  return {given(fields, key, limits)};
}

Layers from(ConfigFields& fields, const char* key, std::int64_t layers) {
  const std::int64_t first = std::ranges::min(one_or_more(fields, key, {0, layers}));
  return layers_where(layers, [&](std::int64_t layer) { return layer >= first; });
}

Layers up_to(ConfigFields& fields, const char* key, std::int64_t layers) {
  const auto ends = one_or_more(fields, key, {-1, kMostStep});  // -1: the last layer
  const std::int64_t last = std::ranges::count(ends, -1) != 0 ? layers - 1 : std::ranges::max(ends);
  return layers_where(layers, [&](std::int64_t layer) { return layer <= last; });
}

Layers periodic(ConfigFields& fields, const char*, std::int64_t layers) {
  const std::int64_t period = fields.need("period of layers with experts", {1, kMostStep}, {"expert_layer_period"});
  const std::int64_t offset = fields.need("offset of layers with experts", {0, period - 1}, {"expert_layer_offset"});
  return layers_where(layers, [&](std::int64_t layer) { return layer % period == offset; });
}

struct Rule {
  const char* key;
  bool whole;  // true: lists all layers with experts. false: excludes layers; all such rules hold together
  Layers (*read)(ConfigFields& fields, const char* key, std::int64_t layers);
};

constexpr std::string_view kFrequency = "moe_layer_freq";

constexpr Rule kRules[] = {
    {"moe_layers", true, listed},                  // Llama 4
    {"moe_layers_enum", true, listed_in_text},     // Step
    {"mlp_layer_types", true, of_kinds},           // GLM
    {kFrequency.data(), true, flagged},            // MiMo, MiniMax: a list
    {kFrequency.data(), false, every_from_first},  // DeepSeek, Kimi: a number
    {"first_k_dense_replace", false, behind},      // DeepSeek, Kimi, GLM
    {"num_dense_layers", false, behind},           // LFM2
    {"moe_layer_num_skipped", false, behind},      // Hunyuan
    {"interleave_moe_layer_step", false, every},   // Llama 4
    {"decoder_sparse_step", false, every},         // Qwen
    {"mlp_only_layers", false, not_listed},        // Qwen
    {"moe_layer_start_index", false, from},        // ERNIE
    {"moe_layer_end_index", false, up_to},         // ERNIE
    {"moe_layer_interval", false, every},          // ERNIE
    {"expert_layer_period", false, periodic},      // Jamba
    {"expert_layer_offset", false, periodic},      // Jamba
};

bool applies(ConfigFields& fields, const Rule& rule) {
  const nlohmann::json* field = fields.get(rule.key);
  return field != nullptr && (rule.key != kFrequency || field->is_array() == rule.whole);
}

struct Statement {
  const Rule* rule;
  Layers layers;
};

// A `whole` rule lists every layer with experts. No other rule may exclude one of them, and two lists must be equal.
void check_agreement(const ConfigFields& fields, const Statement& whole, const Statement& other) {
  for (std::size_t layer = 0; layer < whole.layers.size(); ++layer) {
    const bool differs = whole.layers[layer] != other.layers[layer];
    if (!differs || (!other.rule->whole && other.layers[layer])) continue;
    const bool has = whole.layers[layer];
    throw fields.error(
        fmt::format("fields \"{}\" and \"{}\" contradict each other: layer {} has experts only by the former",
                    has ? whole.rule->key : other.rule->key, has ? other.rule->key : whole.rule->key, layer));
  }
}

}  // namespace

void know_layer_rules(ConfigFields& fields) {
  for (const Rule& rule : kRules) static_cast<void>(fields.get(rule.key));
}

std::vector<bool> layers_with_experts(ConfigFields& fields, std::int64_t layers) {
  std::vector<Statement> statements;
  for (const Rule& rule : kRules)
    if (applies(fields, rule)) statements.push_back({&rule, rule.read(fields, rule.key, layers)});
  for (const Statement& whole : statements) {
    if (!whole.rule->whole) continue;
    for (const Statement& other : statements) check_agreement(fields, whole, other);
  }
  Layers all(static_cast<std::size_t>(layers), true);
  for (const Statement& statement : statements)
    for (std::size_t layer = 0; layer < all.size(); ++layer) all[layer] = all[layer] && statement.layers[layer];
  return all;
}

}  // namespace weft::cli
