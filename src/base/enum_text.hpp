// The allowed values of an argument, in words.
#pragma once

#include <fmt/format.h>

#include <string>

#include "weft/error.hpp"
#include "weft/types.hpp"

namespace weft::detail {

// Enumerators from the first on: "bf16, f16, f32 or i32".
template <class Enum>
std::string choices(Enum last) {
  std::string all(name(Enum{}));
  const int most = static_cast<int>(last);
  for (int value = 1; value <= most; ++value)
    all += fmt::format("{}{}", value == most ? " or " : ", ", name(static_cast<Enum>(value)));
  return all;
}

// Throws if an enumerator lies behind the last one: a caller may have made it from a number.
template <class Enum>
void check_choice(const char* argument, Enum value, Enum last) {
  if (value <= last) return;
  throw Error(Errc::invalid_argument,
              fmt::format("{}: {} is not {}", argument, static_cast<int>(value), choices(last)));
}

}  // namespace weft::detail
