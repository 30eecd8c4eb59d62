#include "models.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <cerrno>
#include <cstring>

#include <algorithm>
#include <array>
#include <cstdint>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>

#include "weft/error.hpp"

namespace weft::cli {
namespace {

using nlohmann::json;
using Names = std::initializer_list<const char*>;

// Far above every model; sizes computed from them stay far below 2^63.
constexpr std::int64_t kMostHidden = 1 << 20;
constexpr std::int64_t kMostLayers = 1 << 16;
constexpr std::int64_t kMostExperts = 1 << 20;

const std::array<ModelShape, 5>& presets() {
  static const std::array<ModelShape, 5> all = {{
      {.name = "deepseek-v3",
       .hidden = 7168,
       .layers = 61,
       .num_experts = 256,
       .top_k = 8,
       .n_group = 8,
       .topk_group = 4,
       .dense_layers = 3},
      {.name = "qwen3-235b", .hidden = 4096, .layers = 94, .num_experts = 128, .top_k = 8},
      {.name = "qwen3-30b", .hidden = 2048, .layers = 48, .num_experts = 128, .top_k = 8},
      {.name = "llama-3.1-70b", .hidden = 8192, .layers = 80},
      {.name = "gpt-oss-120b", .hidden = 2880, .layers = 36, .num_experts = 128, .top_k = 4},
  }};
  return all;
}

// The object that describes the language model: configurations of multimodal models nest it.
const json& language_part(const json& config) {
  for (const char* key : {"text_config", "llm_config", "language_config", "thinker_config"}) {
    const auto nested = config.find(key);
    if (nested != config.end() && nested->is_object()) return language_part(*nested);
  }
  return config;
}

struct Limits {
  std::int64_t least, most;
};

// A field as it stands in the file, cut short where it is long.
std::string shown(const json& field) {
  constexpr std::size_t kMost = 60;
  std::string text = field.dump(-1, ' ', /*ensure_ascii=*/true, json::error_handler_t::replace);
  if (text.size() > kMost) text = text.substr(0, kMost) + "…";
  return text;
}

std::int64_t number(const json& field, const char* name, Limits limits) {
  const bool repeats = field.is_array() && !field.empty() &&
                       std::all_of(field.begin(), field.end(), [&](const json& layer) { return layer == field[0]; });
  const json& value = repeats ? field[0] : field;
  // What is above the range of int64 comes out negative, and so below any limit.
  const bool fits = value.is_number_integer() && value.get<std::int64_t>() >= limits.least &&
                    value.get<std::int64_t>() <= limits.most;
  if (!fits)
    throw Error(Errc::invalid_argument,
                fmt::format("config.json: field \"{}\" is {}, must be an integer between {} and {}, or a list that "
                            "repeats one",
                            name, shown(field), limits.least, limits.most));
  return value.get<std::int64_t>();
}

// The first of `names` that is present and not null, also inside the sub-object that DBRX uses.
std::optional<std::int64_t> find(const json& config, Limits limits, Names names) {
  for (const char* name : names) {
    const auto field = config.find(name);
    if (field != config.end() && !field->is_null()) return number(*field, name, limits);
  }
  const auto nested = config.find("ffn_config");
  return nested != config.end() && nested->is_object() ? find(*nested, limits, names) : std::nullopt;
}

std::int64_t need(const json& config, const char* meaning, Limits limits, Names names) {
  const auto value = find(config, limits, names);
  if (!value)
    throw Error(Errc::invalid_argument,
                fmt::format("config.json: no field for the {} (looked for {})", meaning, fmt::join(names, ", ")));
  return *value;
}

// The text with NaN, Infinity and -Infinity in quotes where they stand outside of strings.
std::string quote_non_finite(std::string_view text) {
  std::string out;
  bool in_string = false;
  while (!text.empty()) {
    std::size_t length = 1;
    if (in_string && text.front() == '\\') length = std::min<std::size_t>(2, text.size());
    if (text.front() == '"') in_string = !in_string;
    bool word = false;
    for (const std::string_view special : {"NaN", "Infinity", "-Infinity"}) {
      if (in_string || !text.starts_with(special)) continue;
      word = true;
      length = special.size();
    }
    if (word) out += '"';
    out += text.substr(0, length);
    if (word) out += '"';
    text.remove_prefix(length);
  }
  return out;
}

}  // namespace

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const auto& shape : presets()) names.push_back(shape.name);
  return names;
}

void require_experts(std::string_view option, const ModelShape& shape) {
  if (shape.has_experts()) return;
  std::vector<std::string> names;
  for (const auto& one : presets())
    if (one.has_experts()) names.push_back(one.name);
  throw Error(Errc::invalid_argument, fmt::format("{} {}: has no experts; presets that have some: {}", option,
                                                  shape.name, fmt::join(names, ", ")));
}

ModelShape preset(std::string_view name) {
  for (const auto& shape : presets())
    if (shape.name == name) return shape;
  throw Error(Errc::invalid_argument,
              fmt::format("model \"{}\" is not known; presets: {} (or --config path/config.json)", name,
                          fmt::join(preset_names(), ", ")));
}

ModelShape shape_from_json(const json& whole, const std::string& name) {
  if (!whole.is_object()) throw Error(Errc::invalid_argument, "config.json: not a JSON object");
  const json& config = language_part(whole);

  ModelShape shape{.name = name};
  shape.hidden = need(config, "hidden size", {1, kMostHidden}, {"hidden_size", "n_embd", "d_model"});
  shape.layers =
      need(config, "number of layers", {1, kMostLayers}, {"num_hidden_layers", "n_layer", "n_layers", "num_layers"});
  shape.num_experts =
      find(config, {0, kMostExperts}, {"n_routed_experts", "num_experts", "num_local_experts", "moe_num_experts"})
          .value_or(0);
  if (!shape.has_experts()) return shape;

  shape.top_k = need(config, "number of experts per token", {1, shape.num_experts},
                     {"num_experts_per_tok", "num_experts_per_token", "experts_per_token", "moe_top_k", "moe_topk",
                      "moe_k", "top_k_experts"});
  // A group is ranked by its two best experts.
  shape.n_group = find(config, {0, std::max<std::int64_t>(1, shape.num_experts / 2)}, {"n_group"}).value_or(0);
  if (shape.n_group > 1) shape.topk_group = find(config, {1, shape.n_group}, {"topk_group"}).value_or(shape.n_group);
  shape.dense_layers = find(config, {0, shape.layers}, {"first_k_dense_replace", "moe_layer_start_index"}).value_or(0);
  return shape;
}

ModelShape shape_from_config(const std::filesystem::path& file) {
  errno = 0;
  std::ifstream in(file);
  in.peek();  // a folder can be opened, and not read
  if (!in.is_open() || in.bad()) {
    throw Error(Errc::invalid_argument, fmt::format("cannot read \"{}\": {}", file.string(), std::strerror(errno)));
  }
  const std::string text(std::istreambuf_iterator<char>(in), {});
  json config;
  try {
    config = json::parse(quote_non_finite(text));
  } catch (const json::exception& error) {
    throw Error(Errc::invalid_argument, fmt::format("\"{}\" is not valid JSON: {}", file.string(), error.what()));
  }
  const auto folder = std::filesystem::absolute(file).parent_path().filename().string();
  return shape_from_json(config, folder.empty() ? file.stem().string() : folder);
}

}  // namespace weft::cli
