// What options take, in this program's words: each check says the value and the range.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>

namespace weft::cli {

// In decimal digits.
CLI::Validator whole_number(std::int64_t least, std::int64_t most);
// Of seconds that an operation may wait: 0, which is for ever, or a millisecond and more.
CLI::Validator deadline_seconds();
// Not an empty text, which is what a script's unset variable gives.
CLI::Validator not_empty();

}  // namespace weft::cli
