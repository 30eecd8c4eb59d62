#include "models/models.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "models/config_fields.hpp"
#include "models/config_file.hpp"
#include "models/layer_blocks.hpp"
#include "models/presets.hpp"

namespace weft::cli {
namespace {

// Far above every model. Sizes computed from them stay far below 2^63.
constexpr std::int64_t kMostHidden = 1 << 20;
constexpr std::int64_t kMostExperts = 1 << 20;
constexpr std::int64_t kMostVocabulary = 1 << 21;

// The shared experts of a layer, and their width: that of all of them, or each is as wide as another expert. Some
// families say only how wide they are, and Llama 4 has one without a field.
void read_shared_experts(ConfigFields& fields, ModelShape& shape) {
  const auto number = fields.find(
      {0, kMostExperts}, {"n_shared_experts", "num_shared_experts", "num_shared_expert", "moe_num_shared_experts"});
  const auto width = fields.find({0, kMostHidden}, {"shared_expert_intermediate_size", "share_expert_dim",
                                                    "moe_shared_expert_intermediate_size", "shared_intermediate_size"});
  const nlohmann::json* type = fields.get("model_type");
  const bool llama4 = type != nullptr && type->is_string() && type->get<std::string>().starts_with("llama4");
  shape.shared_experts = number.value_or(llama4 || width.value_or(0) != 0 ? 1 : 0);
  if (shape.shared_experts == 0) return;
  shape.shared_intermediate = width.value_or(0) != 0 ? *width : shape.shared_experts * shape.intermediate;
}

void read_experts(ConfigFields& fields, ModelShape& shape) {
  const ConfigFields::Names top_k = {
      "num_experts_per_tok", "num_experts_per_token", "experts_per_token", "moe_top_k", "moe_topk", "moe_k",
      "top_k_experts"};
  const ConfigFields::Names width = {"moe_latent_size", "routed_expert_hidden_size"};
  if (!shape.has_experts()) {  // the fields may be present without a meaning
    for (const char* name : top_k) static_cast<void>(fields.get(name));
    for (const char* name : width) static_cast<void>(fields.get(name));
    return;
  }
  shape.zero_experts = fields.find({0, kMostExperts}, {"zero_expert_num"}).value_or(0);
  shape.top_k = fields.need("number of experts per token", {1, shape.num_experts + shape.zero_experts}, top_k);
  // Routing scores a group by its two best experts, so a group has at least two.
  const std::int64_t most_groups = std::max<std::int64_t>(1, shape.num_experts / 2);
  shape.n_group = fields.find({0, most_groups}, {"n_group", "num_expert_group"}).value_or(0);
  if (shape.n_group > 1) shape.topk_group = fields.find({1, shape.n_group}, {"topk_group"}).value_or(shape.n_group);
  const std::int64_t rows = fields.find({1, kMostHidden}, width).value_or(shape.hidden);
  if (rows != shape.hidden) shape.latent = rows;
  // A model with dense layers names their width apart.
  shape.intermediate = fields.find({1, kMostHidden}, {"moe_intermediate_size", "intermediate_size"}).value_or(0);
  read_shared_experts(fields, shape);
}

}  // namespace

std::string in_words(const ModelShape& shape) {
  std::string text = fmt::format("hidden {}, {} layers", shape.hidden, shape.layers);
  if (!shape.has_experts()) return text;
  text += fmt::format(", {} with experts: {}, top-{}", shape.moe_layers, shape.num_experts, shape.top_k);
  if (shape.n_group > 1) text += fmt::format(" in {} of {} groups", shape.topk_group, shape.n_group);
  if (shape.zero_experts != 0) text += fmt::format(", {} more without rows", shape.zero_experts);
  if (shape.latent != 0) text += fmt::format(", dispatched rows of {}", shape.latent);
  return text;
}

void require_experts(std::string_view option, const ModelShape& shape) {
  if (shape.zero_experts != 0)
    throw Error(Errc::invalid_argument,
                fmt::format("{} {}: zero_expert_num is {}: the number of tokens that choose experts without "
                            "rows is unknown, so dispatch and combine are not measured",
                            option, shape.name, shape.zero_experts));
  if (shape.has_experts()) return;
  std::vector<std::string> names;
  for (const auto& name : preset_names())
    if (preset(name).has_experts()) names.push_back(name);
  throw Error(Errc::invalid_argument, fmt::format("{} {}: has no experts; presets that have some: {}", option,
                                                  shape.name, fmt::join(names, ", ")));
}

ModelShape shape_from_json(const nlohmann::json& config, const std::string& name, const std::string& file) {
  ConfigFields fields(config, file);
  ModelShape shape{.name = name};
  shape.hidden = fields.need("hidden size", {1, kMostHidden}, {"hidden_size", "n_embd", "d_model"});
  shape.vocabulary = std::max<std::int64_t>(0, fields.find({-1, kMostVocabulary}, {"vocab_size"}).value_or(0));
  shape.num_experts =
      fields.find({0, kMostExperts}, {"n_routed_experts", "num_experts", "num_local_experts", "moe_num_experts"})
          .value_or(0);
  if (shape.num_experts == 1) shape.num_experts = 0;  // Jamba and Hunyuan models without experts say 1
  const LayerBlocks blocks = count_blocks(fields, shape.has_experts());
  if (blocks.experts == 0) shape.num_experts = 0;
  if (blocks.experts != 0 && !shape.has_experts())
    throw fields.error(fmt::format("{} layers have experts, and no field says how many", blocks.experts));
  shape.layers = blocks.layers;
  shape.moe_layers = blocks.experts;
  shape.all_reduces = blocks.all_reduces();
  shape.gathers = blocks.feed_forward;
  shape.dense_parts = blocks.dense;
  read_experts(fields, shape);
  for (const auto& field : fields.unread())
    shape.warnings.push_back(
        fmt::format("{}: field \"{}\" is not known: its effect on layers or experts is ignored", file, field));
  return shape;
}

ModelShape shape_from_config(const std::filesystem::path& given) {
  const std::filesystem::path file = config_path(given);
  const nlohmann::json config = read_config(file);
  const auto folder = std::filesystem::absolute(file).parent_path().filename().string();
  return shape_from_json(config, folder.empty() ? file.stem().string() : folder, file.string());
}

}  // namespace weft::cli
