// Checks of option values. Each message gives the value and the range.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>

namespace weft::cli {

// Decimal digits only.
CLI::Validator whole_number(std::int64_t least, std::int64_t most);
// Seconds that an operation may wait: 0 (no limit), or at least a millisecond.
CLI::Validator deadline_seconds();
// Rejects an empty text, which a script's unset variable gives.
CLI::Validator not_empty();

}  // namespace weft::cli
