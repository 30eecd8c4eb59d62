// Tells whether the user's table file serves the present ranks.
#pragma once

#include <string>

#include "common/ranks.hpp"

namespace weft::cli {

// The reason why --tuning `file` has no effect. Empty if it has an effect, or if no file was given.
std::string unused_tuning(const Ranks& ranks, const std::string& file);

}  // namespace weft::cli
