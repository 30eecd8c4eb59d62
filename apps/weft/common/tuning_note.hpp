// Whether a file of tables that a user gave serves the ranks at hand.
#pragma once

#include <string>

#include "common/ranks.hpp"

namespace weft::cli {

// Why --tuning `file` has no effect; empty where it has, or none was given.
std::string unused_tuning(const Ranks& ranks, const std::string& file);

}  // namespace weft::cli
