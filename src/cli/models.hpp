// What a model's layers look like from the network's side: presets and Hugging Face config.json files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace weft::cli {

// The numbers that decide what a layer communicates, and no others: what is not measured with need not be in a file. A
// count of 0 means that the model has no such part.
struct ModelShape {
  std::string name;
  std::int64_t hidden = 0;        // width of the residual stream
  std::int64_t layers = 0;        // decoder layers
  std::int64_t num_experts = 0;   // routed experts; 0: a dense model
  std::int64_t top_k = 0;         // experts per token
  std::int64_t n_group = 0;       // groups that experts are chosen by (DeepSeek's node-limited routing)
  std::int64_t topk_group = 0;    // groups that a token may use
  std::int64_t dense_layers = 0;  // leading layers without experts

  bool has_experts() const { return num_experts > 0; }
};

// Names that preset() knows, in the order in which --help lists them.
std::vector<std::string> preset_names();
// Throws where the shape that `option` names has none.
void require_experts(std::string_view option, const ModelShape& shape);

// Throws Errc::invalid_argument, listing the known names, when `name` is none of them.
ModelShape preset(std::string_view name);

// Reads a Hugging Face config.json, whose field names differ from architecture to architecture; the language model of a
// multimodal configuration is found in its text_config (or the like). A list with a number for each layer is that
// number where all are the same. Throws Errc::invalid_argument with the name of a missing field, or with the name and
// value of a nonsensical one and what it may be. transformers writes NaN and Infinity, which JSON does not have: read
// as strings, they trouble only the field that they are in.
ModelShape shape_from_config(const std::filesystem::path& file);
ModelShape shape_from_json(const nlohmann::json& config, const std::string& name);

}  // namespace weft::cli
