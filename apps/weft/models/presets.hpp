// Models that need no file: each is read from the configuration in models/ that has its name.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "models/models.hpp"

namespace weft::cli {

// In the order in which --help lists them.
std::vector<std::string> preset_names();

// By that name, or by the model's own, with or without its organisation, in whatever case: "deepseek-ai/DeepSeek-V3".
// Throws Errc::invalid_argument, listing the known names, when `name` is none of them.
ModelShape preset(std::string_view name);

}  // namespace weft::cli
