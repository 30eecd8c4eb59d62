// Models that need no file: each is read from the configuration of its name in models/.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "models/models.hpp"

namespace weft::cli {

// In the order of --help.
std::vector<std::string> preset_names();

// Finds a model by its preset name or its own name, with or without the organisation, in any case:
// "deepseek-ai/DeepSeek-V3". Otherwise throws Errc::invalid_argument with the known names.
ModelShape preset(std::string_view name);

}  // namespace weft::cli
