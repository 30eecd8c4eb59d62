// Which layers of a model have experts, where each layer is attention (or the like) and a feed-forward part: what the
// fields of its config.json say, as each family means them.
#pragma once

#include <cstdint>
#include <vector>

#include "models/config_fields.hpp"

namespace weft::cli {

// One for each layer. Throws Errc::invalid_argument for a field that cannot be, and where two contradict each other.
std::vector<bool> layers_with_experts(ConfigFields& fields, std::int64_t layers);

// For a model without experts, whose configuration may have such fields all the same: they are known.
void know_layer_rules(ConfigFields& fields);

}  // namespace weft::cli
