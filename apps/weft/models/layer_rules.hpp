// Finds the layers with experts if each layer is attention (or the like) and a feed-forward part. Reads the fields of
// config.json as each model family means them.
#pragma once

#include <cstdint>
#include <vector>

#include "models/config_fields.hpp"

namespace weft::cli {

// One element per layer. Throws Errc::invalid_argument for an impossible value and for fields that contradict each
// other.
std::vector<bool> layers_with_experts(ConfigFields& fields, std::int64_t layers);

// Marks these fields as read. A model without experts may have them, too.
void know_layer_rules(ConfigFields& fields);

}  // namespace weft::cli
