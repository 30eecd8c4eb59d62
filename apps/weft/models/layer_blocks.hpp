// Counts the blocks of a model's layers.
#pragma once

#include <cstdint>

#include "models/config_fields.hpp"

namespace weft::cli {

// Sums over all layers.
struct LayerBlocks {
  std::int64_t layers = 0;
  std::int64_t mixers = 0;        // attention, Mamba and the like
  std::int64_t dense = 0;         // feed-forward parts without experts
  std::int64_t experts = 0;       // feed-forward parts with experts
  std::int64_t feed_forward = 0;  // feed-forward parts, dense and experts side by side counted as one

  // With tensor parallelism each block ends with an all-reduce.
  std::int64_t all_reduces() const { return mixers + dense + experts; }
};

// `has_experts`: the configuration has a number of experts. Throws Errc::invalid_argument for impossible or unknown
// values.
LayerBlocks count_blocks(ConfigFields& fields, bool has_experts);

}  // namespace weft::cli
