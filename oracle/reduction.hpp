// Sums and maxima of all ranks' elements: f32 in rank order, rounded once; i32 modulo 2^32.
#pragma once

#include "oracle/number.hpp"

namespace weft::oracle {

struct Op {
  enum Name : std::uint8_t { sum, max };
  template <Enum E>
  constexpr Op(E of) : name(of == E::sum ? sum : max) {}
  Name name;
};

// Reduces the ranks' values, in rank order. max: NaN wins over every number, and +0 over −0.
float reduce_values(Op op, std::span<const float> values);
std::uint32_t reduce_values(Op op, std::span<const std::uint32_t> values);  // i32
// The same as bits of `type`.
std::uint32_t reduce_element(Type type, Op op, std::span<const std::uint32_t> values);
// Tensors of as many elements each.
Bytes reduce(Type type, Op op, std::span<const Bytes> inputs);

}  // namespace weft::oracle
