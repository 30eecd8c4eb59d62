// Reductions of all ranks' elements. Sums are made in f32 in rank order, and rounded once; those of integers wrap.
#pragma once

#include "oracle/number.hpp"

namespace weft::oracle {

struct Op {
  enum Name : std::uint8_t { sum, max, min, avg };
  template <Enum E>
  constexpr Op(E of) : name(of == E::sum   ? sum
                            : of == E::max ? max
                            : of == E::min ? min
                                           : avg) {}
  Name name;
};

// Reduces the ranks' values, in rank order. max and min: NaN wins over every number, and −0 is less than +0. avg: the
// sum, divided in f32 by the number of ranks.
float reduce_values(Op op, std::span<const float> values);
// Bits of integers. Sums are modulo 2^32, 2^64 or 2^8; averages divide them, and u8's exact sum, toward zero.
std::uint64_t reduce_values(Type type, Op op, std::span<const std::uint64_t> values);
// The same as bits of any type.
std::uint64_t reduce_element(Type type, Op op, std::span<const std::uint64_t> values);
// Tensors of as many elements each.
Bytes reduce(Type type, Op op, std::span<const Bytes> inputs);

}  // namespace weft::oracle
