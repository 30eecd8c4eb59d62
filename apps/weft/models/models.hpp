// What a model's layers look like from the network's side, read from its Hugging Face config.json.
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
  std::int64_t hidden = 0;                 // width of the residual stream
  std::int64_t layers = 0;                 // decoder layers
  std::int64_t moe_layers = 0;             // those with experts
  std::int64_t all_reduces = 0;            // tensor parallel, of a forward pass: one for each block of a layer
  std::int64_t gathers = 0;                // with data-parallel attention, likewise, and as many scatters
  std::int64_t num_experts = 0;            // routed experts; 0: a dense model
  std::int64_t top_k = 0;                  // experts per token
  std::int64_t n_group = 0;                // groups that experts are chosen by (DeepSeek's node-limited routing)
  std::int64_t topk_group = 0;             // groups that a token may use
  std::int64_t latent = 0;                 // width of the rows that experts get, where it is not `hidden`
  std::int64_t zero_experts = 0;           // chosen like others, and nothing is sent to them
  std::vector<std::string> warnings = {};  // sentences about fields that were not read

  bool has_experts() const { return num_experts > 0; }
  std::int64_t row_width() const { return latent != 0 ? latent : hidden; }  // of a dispatched row
};

// "hidden 7168, 61 layers, 58 with experts: 256, top-8"
std::string in_words(const ModelShape& shape);

// Throws where the shape that `option` names has no experts, or some that nobody measures.
void require_experts(std::string_view option, const ModelShape& shape);

// Reads a config.json (or that of a folder), whose field names differ from architecture to architecture. Throws
// Errc::invalid_argument with the file, and the name of a missing field, or the name and value of a nonsensical one and
// what it may be. `file` is named in errors.
ModelShape shape_from_config(const std::filesystem::path& file);
ModelShape shape_from_json(const nlohmann::json& config, const std::string& name, const std::string& file);

}  // namespace weft::cli
