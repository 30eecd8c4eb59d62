// A function of single elements, with the same bits on CPU and GPU: y = cap · tanh(scale · x / cap), rounded once.
#pragma once

#include <cstdint>

#include "base/function.hpp"
#include "base/pack.hpp"
#include "numeric/numeric.hpp"
#include "weft/types.hpp"

namespace weft::detail {

// e^y for −20 ≤ y ≤ 0: 2^n · e^r with |r| ≤ ln 2 / 2, and Taylor's series of e^r up to r^7. ln 2 in two parts (Cody and
// Waite, Software Manual for the Elementary Functions, 1980).
WEFT_FN float exponential(float y) {
  const float scaled = multiply_add(y, 0x1.715476p+0f, 0x1.8p23f);  // rounds y / ln 2 to an integer
  const float n = scaled - 0x1.8p23f;
  const float r = multiply_add(n, 0x1.bd0106p-13f, multiply_add(n, -0x1.63p-1f, y));
  constexpr float kInverseFactorials[] = {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f};
  float sum = 1.0f / 5040;
  WEFT_UNROLL
  for (const float term : kInverseFactorials) sum = multiply_add(sum, r, term);
  return sum * bits_of<float>(static_cast<std::uint32_t>(static_cast<std::int32_t>(n) + 127) << 23);
}

// Within 1.5 units in the last place. Small numbers by an odd polynomial (a weighted least-squares fit), since 1 −
// e^−2x would cancel.
WEFT_FN float hyperbolic_tangent(float x) {
  const float magnitude = bits_of<float>(bits_of<std::uint32_t>(x) & 0x7fffffffu);
  const std::uint32_t sign = bits_of<std::uint32_t>(x) & 0x80000000u;
  if (magnitude <= 0.625f) {
    const float square = x * x;
    constexpr float kTerms[] = {0x1.5256bep-6f, -0x1.b84444p-5f, 0x1.110768p-3f, -0x1.555534p-2f};
    float sum = -0x1.76abb2p-8f;
    WEFT_UNROLL
    for (const float term : kTerms) sum = multiply_add(sum, square, term);
    return multiply_add(sum * square, x, x);
  }
  if (is_nan(x)) return x;
  float result = 1.0f;
  if (magnitude < 9.5f) {
    const float rest = exponential(-2.0f * magnitude);
    result = quotient(1.0f - rest, 1.0f + rest);
  }
  return bits_of<float>(bits_of<std::uint32_t>(result) | sign);
}

// From bf16, f16 or f32, to the same type or to f32.
struct ElementMap {
  DataType from, to;
  float scale;
  float soft_cap;  // 0: none

  WEFT_FN float operator()(float x) const {
    const float scaled = x * scale;
    return canonical(soft_cap != 0 ? soft_cap * hyperbolic_tangent(quotient(scaled, soft_cap)) : scaled);
  }

  WEFT_FN std::uint32_t elements() const { return from == DataType::f32 ? 4 : 8; }  // of a pack of `from`
  WEFT_FN std::uint32_t widening() const { return to != from && to == DataType::f32 ? 2 : 1; }
  // Calls `visit(i, bits)` for the elements of a pack.
  template <class Visit>
  WEFT_FN void each(const Pack& pack, Visit visit) const {
    if (from == DataType::f32) {
      WEFT_UNROLL
      for (std::uint32_t i = 0; i < 4; ++i) visit(i, bits((*this)(bits_of<float>(pack.word[i]))));
    } else {
      WEFT_UNROLL
      for (std::uint32_t i = 0; i < 8; ++i) {
        const auto half = static_cast<std::uint16_t>(pack.word[i / 2] >> (i % 2 * 16));
        visit(i, bits((*this)(from == DataType::bf16 ? bf16_to_f32(half) : f16_to_f32(half))));
      }
    }
  }
  // Puts the bits of element `i` among words that are zero there.
  WEFT_FN void set(std::uint32_t* words, std::uint32_t i, std::uint32_t bits) const {
    if (to == DataType::f32) {
      words[i] = bits;
    } else {
      words[i / 2] |= bits << (i % 2 * 16);
    }
  }

 private:
  WEFT_FN std::uint32_t bits(float value) const {
    if (to == DataType::f32) return bits_of<std::uint32_t>(value);
    return to == DataType::bf16 ? f32_to_bf16(value) : f32_to_f16(value);
  }
};

}  // namespace weft::detail
