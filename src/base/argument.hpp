// Rejects the value of an argument.
#pragma once

#include <fmt/format.h>

#include <string_view>

#include "weft/error.hpp"

namespace weft::detail {

// Throws "argument: value is not range" unless it is good.
template <class Value>
void check_argument(bool good, std::string_view argument, const Value& value, std::string_view range) {
  if (!good) throw Error(Errc::invalid_argument, fmt::format("{}: {} is not {}", argument, value, range));
}

}  // namespace weft::detail
