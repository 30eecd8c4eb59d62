// Elements of columns that come to other ranks: scaled, capped, and of another type.
#pragma once

#include "oracle/number.hpp"

namespace weft::oracle {

// A change of elements. Without any they keep their bits, of any type; else both types have a Format.
struct ColumnChange {
  Type from, to;
  float scale = 1, soft_cap = 0;  // 0: none

  constexpr bool keeps_bits() const { return from == to && scale == 1 && soft_cap == 0; }
};
// scale · x in f32, then rounded to `to`. With a cap: cap · tanh(x · (scale / cap)), the quotient a number of f32. Then
// the product in front of tanh is off by half a unit of f32, and tanh by two and a half. NaN becomes the one of `to`.
RightBits changed_element(const ColumnChange& change, std::uint64_t bits);

}  // namespace weft::oracle
