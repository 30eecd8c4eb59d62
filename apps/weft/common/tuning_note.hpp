// Tells whether the user's table file serves the present ranks.
#pragma once

#include <string>
#include <vector>

#include "common/ranks.hpp"

namespace weft::cli {

// The reason why --tuning `file` has no effect. Empty if it has an effect, or if no file was given.
std::string unused_tuning(const Ranks& ranks, const std::string& file);

// The tables that serve layers of experts of these ranks: "CPU, 2 ranks (measured): 128 and 256 columns, …".
std::vector<std::string> layer_tuning(const Ranks& ranks);
// The tables that serve exchanges, likewise. A table of other ranks or of another processor says that it is not for
// these.
std::vector<std::string> exchange_tuning(const Ranks& ranks);

}  // namespace weft::cli
