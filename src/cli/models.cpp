#include "models.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <fstream>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>

#include "weft/error.hpp"

namespace weft::cli {
namespace {

using nlohmann::json;
using Names = std::initializer_list<const char*>;

const std::array<ModelShape, 5>& presets() {
  static const std::array<ModelShape, 5> all = {{
      {.name = "deepseek-v3",
       .hidden = 7168,
       .layers = 61,
       .heads = 128,
       .kv_heads = 128,
       .vocab = 129280,
       .intermediate = 18432,
       .num_experts = 256,
       .top_k = 8,
       .moe_intermediate = 2048,
       .n_group = 8,
       .topk_group = 4,
       .shared_experts = 1,
       .dense_layers = 3},
      {.name = "qwen3-235b",
       .hidden = 4096,
       .layers = 94,
       .heads = 64,
       .kv_heads = 4,
       .vocab = 151936,
       .intermediate = 12288,
       .num_experts = 128,
       .top_k = 8,
       .moe_intermediate = 1536},
      {.name = "qwen3-30b",
       .hidden = 2048,
       .layers = 48,
       .heads = 32,
       .kv_heads = 4,
       .vocab = 151936,
       .intermediate = 6144,
       .num_experts = 128,
       .top_k = 8,
       .moe_intermediate = 768},
      {.name = "llama-3.1-70b",
       .hidden = 8192,
       .layers = 80,
       .heads = 64,
       .kv_heads = 8,
       .vocab = 128256,
       .intermediate = 28672},
      {.name = "gpt-oss-120b",
       .hidden = 2880,
       .layers = 36,
       .heads = 64,
       .kv_heads = 8,
       .vocab = 201088,
       .intermediate = 2880,
       .num_experts = 128,
       .top_k = 4,
       .moe_intermediate = 2880},
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

// The first of `names` that is present and not null, also inside the sub-objects that DBRX uses.
std::optional<std::int64_t> find(const json& config, Names names) {
  for (const char* name : names) {
    const auto field = config.find(name);
    if (field == config.end() || field->is_null()) continue;
    if (!field->is_number_integer() || field->get<std::int64_t>() < 0)
      throw Error(Errc::invalid_argument,
                  fmt::format("config.json: field \"{}\" is {}, must be an integer ≥ 0", name, field->dump()));
    return field->get<std::int64_t>();
  }
  for (const char* part : {"ffn_config", "attn_config"}) {
    const auto nested = config.find(part);
    if (nested == config.end() || !nested->is_object()) continue;
    if (const auto value = find(*nested, names)) return value;
  }
  return std::nullopt;
}

std::int64_t need(const json& config, const char* meaning, Names names) {
  const auto value = find(config, names);
  if (!value)
    throw Error(Errc::invalid_argument,
                fmt::format("config.json: no field for the {} (looked for {})", meaning, fmt::join(names, ", ")));
  if (*value == 0)
    throw Error(Errc::invalid_argument,
                fmt::format("config.json: the {} is 0, must be ≥ 1 ({})", meaning, fmt::join(names, ", ")));
  return *value;
}

}  // namespace

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const auto& shape : presets()) names.push_back(shape.name);
  return names;
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
  shape.hidden = need(config, "hidden size", {"hidden_size", "n_embd", "d_model"});
  shape.layers = need(config, "number of layers", {"num_hidden_layers", "n_layer", "n_layers", "num_layers"});
  shape.heads = need(config, "number of attention heads", {"num_attention_heads", "n_head", "n_heads"});
  shape.kv_heads = find(config, {"num_key_value_heads", "num_kv_heads", "kv_n_heads"}).value_or(shape.heads);
  shape.vocab = need(config, "vocabulary size", {"vocab_size"});
  shape.num_experts =
      find(config, {"n_routed_experts", "num_experts", "num_local_experts", "moe_num_experts"}).value_or(0);

  const auto width = find(config, {"intermediate_size", "ffn_hidden_size", "n_inner"});
  // Llama 4 names the dense layers' width apart, because intermediate_size is the experts'.
  shape.intermediate = find(config, {"intermediate_size_mlp"}).value_or(width.value_or(0));
  if (!shape.has_experts()) return shape;

  shape.top_k = need(config, "number of experts per token",
                     {"num_experts_per_tok", "num_experts_per_token", "experts_per_token", "moe_top_k", "moe_topk",
                      "moe_k", "top_k_experts"});
  if (shape.top_k > shape.num_experts)
    throw Error(Errc::invalid_argument,
                fmt::format("config.json: {} experts per token, but only {} experts", shape.top_k, shape.num_experts));
  // Mixtral, gpt-oss and Llama 4 have no field of their own for the width of an expert.
  shape.moe_intermediate =
      find(config, {"moe_intermediate_size", "expert_ffn_hidden_size"}).value_or(width.value_or(0));
  if (shape.moe_intermediate == 0)
    shape.moe_intermediate = need(config, "width of an expert", {"moe_intermediate_size", "intermediate_size"});
  shape.n_group = find(config, {"n_group"}).value_or(0);
  shape.topk_group = find(config, {"topk_group"}).value_or(0);
  shape.shared_experts = find(config, {"n_shared_experts", "num_shared_experts"}).value_or(0);
  shape.dense_layers = find(config, {"first_k_dense_replace", "moe_layer_start_index"}).value_or(0);
  return shape;
}

ModelShape shape_from_config(const std::filesystem::path& file) {
  std::ifstream in(file);
  if (!in) throw Error(Errc::invalid_argument, fmt::format("cannot read \"{}\"", file.string()));
  const json config = json::parse(in, nullptr, /*allow_exceptions=*/false);
  if (config.is_discarded())
    throw Error(Errc::invalid_argument, fmt::format("\"{}\" is not valid JSON", file.string()));
  const auto folder = std::filesystem::absolute(file).parent_path().filename().string();
  return shape_from_json(config, folder.empty() ? file.stem().string() : folder);
}

}  // namespace weft::cli
