#include "models/layer_blocks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>

#include "common/lower_case.hpp"
#include "models/layer_rules.hpp"

namespace weft::cli {
namespace {

using nlohmann::json;

constexpr ConfigFields::Limits kLayers = {1, 1 << 16};  // far above every model
constexpr ConfigFields::Names kLayerNames = {"num_hidden_layers", "n_layer", "n_layers", "num_layers"};

void check_number_of_layers(ConfigFields& fields, const char* key, std::size_t length) {
  const auto layers = fields.find(kLayers, kLayerNames);
  if (length == 0 || (layers && *layers != static_cast<std::int64_t>(length)))
    throw fields.error(fmt::format("field \"{}\" has {} layers, must have {}", key, length, layers ? *layers : 1));
}

// Nemotron-H: every layer is one block.
struct Kind {
  std::string_view letter, name;  // in hybrid_override_pattern, in layers_block_type
  std::int64_t LayerBlocks::*counted;
};
constexpr Kind kKinds[] = {{"M", "mamba", &LayerBlocks::mixers},
                           {"*", "attention", &LayerBlocks::mixers},
                           {"-", "mlp", &LayerBlocks::dense},
                           {"E", "moe", &LayerBlocks::experts}};

LayerBlocks of_single_blocks(ConfigFields& fields, const char* key, const std::vector<std::string>& blocks) {
  check_number_of_layers(fields, key, blocks.size());
  LayerBlocks all{.layers = static_cast<std::int64_t>(blocks.size())};
  for (const auto& block : blocks) {
    const auto is = [&](const Kind& kind) { return kind.letter == block || kind.name == block; };
    const auto kind = std::ranges::find_if(kKinds, is);
    if (kind == std::ranges::end(kKinds)) throw fields.bad(key, block, "mamba, attention, mlp or moe");
    ++(all.*(kind->counted));
  }
  all.feed_forward = all.dense + all.experts;
  return all;
}

LayerBlocks of_pattern(ConfigFields& fields, const char* key) {
  const std::string pattern = fields.text(key);
  if (pattern.find_first_not_of("M*-E") != std::string::npos)
    throw fields.bad(key, pattern, "made of M (mamba), * (attention), - (mlp) and E (moe)");
  std::vector<std::string> letters;
  for (const char letter : pattern) letters.emplace_back(1, letter);
  return of_single_blocks(fields, key, letters);
}

// Nemotron-NAS: a layer may lack attention or the feed-forward part.
bool has_part(const ConfigFields& fields, const json& layer, const std::string& name, const char* part) {
  const auto found = layer.find(part);
  if (found == layer.end()) throw fields.bad(name, layer, fmt::format("an object with \"{}\"", part));
  if (found->is_null()) return false;
  const auto is = [&](const char* what) {
    const auto flag = found->find(what);
    return flag != found->end() && *flag == true;
  };
  const bool known =
      found->is_object() && !is("replace_with_linear") && (!found->contains("moe") || found->at("moe").is_null());
  if (!known)
    throw fields.bad(fmt::format("{}.{}", name, part), *found,
                     "null or an object without experts and without replace_with_linear");
  return !is("no_op");
}

LayerBlocks of_block_configs(ConfigFields& fields, const json& layers) {
  if (!layers.is_array()) throw fields.bad("block_configs", layers, "a list of objects");
  check_number_of_layers(fields, "block_configs", layers.size());
  LayerBlocks all{.layers = static_cast<std::int64_t>(layers.size())};
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const std::string name = fmt::format("block_configs[{}]", i);
    if (!layers[i].is_object()) throw fields.bad(name, layers[i], "an object");
    all.mixers += has_part(fields, layers[i], name, "attention") ? 1 : 0;
    all.dense += has_part(fields, layers[i], name, "ffn") ? 1 : 0;
  }
  all.feed_forward = all.dense;
  return all;
}

// Compares the model's type or architecture, if they are texts.
bool is_of(ConfigFields& fields, std::string_view family) {
  const json* type = fields.get("model_type");
  const json* architectures = fields.get("architectures");
  const bool listed = architectures != nullptr && architectures->is_array() && !architectures->empty();
  for (const json* name : {type, listed ? &architectures->front() : nullptr})
    if (name != nullptr && name->is_string() && lower_case(name->get<std::string>()).starts_with(family)) return true;
  return false;
}

// LongCat: a layer has attention and a dense part twice, and experts beside the second half. If it has
// num_hidden_layers, that field counts halves.
LayerBlocks of_longcat(ConfigFields& fields) {
  static_cast<void>(fields.get("num_hidden_layers"));
  const std::int64_t layers = fields.need("number of layers", kLayers, {"num_layers"});
  return {.layers = layers, .mixers = 2 * layers, .dense = 2 * layers, .experts = layers, .feed_forward = 2 * layers};
}

// Every layer has attention (or the like) and a feed-forward part.
LayerBlocks of_usual_layers(ConfigFields& fields, bool has_experts) {
  const std::int64_t layers = fields.need("number of layers", kLayers, kLayerNames);
  LayerBlocks all{.layers = layers, .mixers = layers, .dense = layers, .feed_forward = layers};
  const json* beside = fields.get("enable_moe_block");  // Gemma 4: experts beside the dense part, each with its norm
  const bool is_beside = beside != nullptr && *beside == true;
  if (!has_experts || (beside != nullptr && !is_beside)) {
    know_layer_rules(fields);
    return all;
  }
  all.experts = std::ranges::count(layers_with_experts(fields, layers), true);
  if (!is_beside) all.dense -= all.experts;
  return all;
}

}  // namespace

LayerBlocks count_blocks(ConfigFields& fields, bool has_experts) {
  if (fields.get("hybrid_override_pattern") != nullptr) return of_pattern(fields, "hybrid_override_pattern");
  if (fields.get("layers_block_type") != nullptr && is_of(fields, "nemotron"))
    return of_single_blocks(fields, "layers_block_type", fields.texts("layers_block_type"));
  if (const json* layers = fields.get("block_configs")) {
    if (has_experts) throw fields.bad("block_configs", *layers, "absent if there are experts");
    return of_block_configs(fields, *layers);
  }
  if (is_of(fields, "longcat")) return of_longcat(fields);
  const json* zero = fields.get("zero_expert_num");
  if (zero != nullptr && *zero != 0)
    throw fields.bad("zero_expert_num", *zero, "0 or absent, except in LongCat models");
  for (const auto& kind : fields.texts("layers_block_type"))
    if (kind != "attention" && kind != "mamba" && kind != "linear_attention")
      throw fields.bad("layers_block_type", kind, "attention, mamba or linear_attention, except in Nemotron models");
  return of_usual_layers(fields, has_experts);
}

}  // namespace weft::cli
