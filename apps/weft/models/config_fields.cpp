#include "models/config_fields.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>

#include "common/lower_case.hpp"

namespace weft::cli {
namespace {

using nlohmann::json;

// Fields about attention, norms, shared experts, or layers that predict further tokens. They change no message.
constexpr std::string_view kElsewhere[] = {"attn_layer_indices",
                                           "attn_layer_offset",
                                           "attn_layer_period",
                                           "cross_attention_layers",
                                           "expert_dtype",
                                           "expert_ffn_hidden_size",
                                           "expert_intermediate_size",
                                           "full_attention_layers",
                                           "global_attn_every_n_layers",
                                           "hidden_size_per_layer_input",
                                           "hybrid_layer_pattern",
                                           "layer_group_size",
                                           "layer_types",
                                           "layerdrop",
                                           "mamba_layer_norm",
                                           "max_window_layers",
                                           "moe_num_shared_experts",
                                           "moe_shared_expert_intermediate_size",
                                           "moe_shared_expert_overlap",
                                           "mtp_layers_block_type",
                                           "mtp_num_hidden_layers",
                                           "mtp_num_layers",
                                           "mtp_transformer_layers",
                                           "n_shared_experts",
                                           "no_rope_layer_interval",
                                           "no_rope_layers",
                                           "norm_expert_weight",
                                           "num_expert_group",
                                           "num_hash_layers",
                                           "num_kv_shared_layers",
                                           "num_nextn_predict_layers",
                                           "num_shared_expert",
                                           "num_shared_experts",
                                           "share_expert_dim",
                                           "shared_expert_intermediate_size",
                                           "sliding_window_layers",
                                           "swa_layers",
                                           "vocab_size_per_layer_input",
                                           "zero_expert_type"};

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

bool is_about_layers(std::string_view key) {
  const std::string name = lower_case(key);
  if (contains(name, "layernorm") || contains(name, "layer_norm")) return false;
  if (std::ranges::find(kElsewhere, std::string_view(name)) != std::ranges::end(kElsewhere)) return false;
  return contains(name, "layer") || contains(name, "expert");
}

// Shortened if it is long.
std::string shown(const json& field) {
  constexpr std::size_t kMost = 60;
  std::string text = field.dump(-1, ' ', /*ensure_ascii=*/true, json::error_handler_t::replace);
  if (text.size() > kMost) text = text.substr(0, kMost) + "…";
  return text;
}

const json* object_in(const json& config, std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    const auto nested = config.find(key);
    if (nested != config.end() && nested->is_object()) return &*nested;
  }
  return nullptr;
}

}  // namespace

ConfigFields::ConfigFields(const json& whole, std::string file) : config_(&whole), file_(std::move(file)) {
  if (!whole.is_object()) throw error("not a JSON object");
  while (const json* nested = object_in(*config_, {"text_config", "llm_config", "language_config", "thinker_config"}))
    config_ = nested;
  feed_forward_ = object_in(*config_, {"ffn_config"});
}

const json* ConfigFields::get(const char* name) {
  asked_.insert(name);
  for (const json* object : {config_, feed_forward_}) {
    if (object == nullptr) continue;
    const auto field = object->find(name);
    if (field != object->end() && !field->is_null()) return &*field;
  }
  return nullptr;
}

std::optional<std::int64_t> ConfigFields::find(Limits limits, Names names) {
  std::optional<std::int64_t> found;
  for (const char* name : names) {
    const json* field = get(name);  // reads every name, so that none of them counts as unread
    if (field != nullptr && !found) found = number(*field, name, limits);
  }
  return found;
}

std::int64_t ConfigFields::need(const char* meaning, Limits limits, Names names) {
  const auto value = find(limits, names);
  if (!value) throw error(fmt::format("no field for the {} (looked for {})", meaning, fmt::join(names, ", ")));
  return *value;
}

std::string ConfigFields::text(const char* name) {
  const json* field = get(name);
  if (field == nullptr) return {};
  if (!field->is_string()) throw bad(name, *field, "a text");
  return field->get<std::string>();
}

std::vector<std::int64_t> ConfigFields::numbers(const char* name, Limits limits) {
  const json* field = get(name);
  if (field == nullptr) return {};
  if (!field->is_array()) throw bad(name, *field, "a list of integers");
  std::vector<std::int64_t> values;
  for (const json& one : *field) {
    const bool flag = one.is_boolean();
    values.push_back(flag ? static_cast<std::int64_t>(one.get<bool>())
                          : number(one, fmt::format("{}[{}]", name, values.size()), limits));
  }
  return values;
}

std::vector<std::string> ConfigFields::texts(const char* name) {
  const json* field = get(name);
  if (field == nullptr) return {};
  std::vector<std::string> values;
  const auto is_text = [](const json& one) { return one.is_string(); };
  if (!field->is_array() || !std::ranges::all_of(*field, is_text)) throw bad(name, *field, "a list of texts");
  return field->get<std::vector<std::string>>();
}

std::int64_t ConfigFields::number(const json& field, const std::string& name, Limits limits) const {
  const bool repeats = field.is_array() && !field.empty() &&
                       std::all_of(field.begin(), field.end(), [&](const json& layer) { return layer == field[0]; });
  const json& value = repeats ? field[0] : field;
  // An unsigned value above the range of int64 becomes negative here, and so fails the lower limit.
  const bool fits = value.is_number_integer() && value.get<std::int64_t>() >= limits.least &&
                    value.get<std::int64_t>() <= limits.most;
  if (!fits)
    throw bad(name, field,
              fmt::format("an integer between {} and {}, or a list that repeats one", limits.least, limits.most));
  return value.get<std::int64_t>();
}

Error ConfigFields::bad(const std::string& name, const json& value, const std::string& wanted) const {
  return error(fmt::format("field \"{}\" is {}, must be {}", name, shown(value), wanted));
}

Error ConfigFields::error(const std::string& what) const {
  return Error(Errc::invalid_argument, fmt::format("{}: {}", file_, what));
}

std::vector<std::string> ConfigFields::unread() const {
  std::vector<std::string> names;
  for (const json* object : {config_, feed_forward_}) {
    if (object == nullptr) continue;
    for (const auto& [name, value] : object->items())
      if (!value.is_null() && is_about_layers(name) && !asked_.contains(name)) names.push_back(name);
  }
  return names;
}

}  // namespace weft::cli
