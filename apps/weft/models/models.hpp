// The communication of a model's layers, read from its Hugging Face config.json.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace weft::cli {

// Only the numbers that decide a layer's communication: a file needs no other fields. A count of 0 means that the model
// has no such part.
struct ModelShape {
  std::string name;
  std::int64_t hidden = 0;                 // width of the residual stream
  std::int64_t layers = 0;                 // decoder layers
  std::int64_t vocabulary = 0;             // columns of the logits; 0: unknown
  std::int64_t moe_layers = 0;             // layers with experts
  std::int64_t all_reduces = 0;            // of a forward pass with tensor parallelism: one for each block of a layer
  std::int64_t gathers = 0;                // of a forward pass with data-parallel attention; there are as many scatters
  std::int64_t dense_parts = 0;            // feed-forward parts without experts, also those beside experts
  std::int64_t shared_experts = 0;         // of a layer with experts: every token goes to them
  std::int64_t shared_intermediate = 0;    // columns between their GEMMs, all of them together; 0: none, or unknown
  std::int64_t num_experts = 0;            // routed experts; 0: a dense model
  std::int64_t top_k = 0;                  // experts per token
  std::int64_t n_group = 0;                // groups of experts (DeepSeek's node-limited routing)
  std::int64_t topk_group = 0;             // groups that a token may use
  std::int64_t latent = 0;                 // width of the rows that experts get, if it is not `hidden`
  std::int64_t intermediate = 0;           // columns between an expert's GEMMs; 0: unknown
  std::int64_t zero_experts = 0;           // chosen like others, but nothing is sent to them
  std::vector<std::string> warnings = {};  // sentences about unread fields

  bool has_experts() const { return num_experts > 0; }
  std::int64_t row_width() const { return latent != 0 ? latent : hidden; }  // of a dispatched row
};

// "hidden 7168, 61 layers, 58 with experts: 256, top-8"
std::string in_words(const ModelShape& shape);

// Throws if the shape that `option` names has no experts, or has experts that no benchmark serves.
void require_experts(std::string_view option, const ModelShape& shape);

// Reads a config.json (or that file of a folder). Field names differ between architectures. Throws
// Errc::invalid_argument with `file` and the field's name. For a nonsensical value it adds the value and the valid
// ones.
ModelShape shape_from_config(const std::filesystem::path& file);
ModelShape shape_from_json(const nlohmann::json& config, const std::string& name, const std::string& file);

}  // namespace weft::cli
