// What a model's layers consist of.
#pragma once

#include <cstdint>

#include "models/config_fields.hpp"

namespace weft::cli {

// Counted over all layers.
struct LayerBlocks {
  std::int64_t layers = 0;
  std::int64_t mixers = 0;        // attention, Mamba and the like
  std::int64_t dense = 0;         // feed-forward parts without experts
  std::int64_t experts = 0;       // feed-forward parts with experts
  std::int64_t feed_forward = 0;  // places that have such a part, or both of them beside each other

  // Tensor parallel: each ends with one.
  std::int64_t all_reduces() const { return mixers + dense + experts; }
};

// `has_experts`: the configuration has a number of experts. Throws Errc::invalid_argument for what cannot be, and for
// what is not understood.
LayerBlocks count_blocks(ConfigFields& fields, bool has_experts);

}  // namespace weft::cli
