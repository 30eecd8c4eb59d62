// The largest numbers of a row.
#pragma once

#include "oracle/number.hpp"

namespace weft::oracle {

struct Found {
  std::uint32_t bits;    // of the number: −0 as +0, and one NaN of all
  std::uint32_t column;  // the smaller one of equal numbers comes first
};
// The `count` largest of a row of bf16, f16 or f32, in descending order. NaN comes before all numbers.
std::vector<Found> largest_of(std::span<const std::byte> row, Type type, std::size_t count);

}  // namespace weft::oracle
