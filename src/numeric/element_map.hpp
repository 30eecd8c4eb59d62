// A function of single elements, with the same bits on CPU and GPU: y = cap · tanh(x · (scale / cap)), rounded once.
#pragma once

#include <cstdint>

#include "base/function.hpp"
#include "base/pack.hpp"
#include "numeric/numeric.hpp"
#include "weft/types.hpp"

namespace weft::detail {

// a / b for 1 ≤ b ≤ 2, within a unit in the last place: a parabola near 1 / b, its error cubed, then squared (Halley,
// Newton). GPUs divide zero by a slow branch, which nearly every warp would take.
WEFT_FN float quotient_of_one_to_two(float a, float b) {
  float inverse = multiply_add(multiply_add(0x1.4afd6ap-2f, b, -0x1.745d18p+0f), b, 0x1.0f83e0p+1f);
  float error = multiply_add(-b, inverse, 1.0f);
  inverse = multiply_add(multiply_add(error, error, error), inverse, inverse);
  error = multiply_add(-b, inverse, 1.0f);
  inverse = multiply_add(error, inverse, inverse);
  const float result = a * inverse;
  return multiply_add(multiply_add(-result, b, a), inverse, result);
}

// Within 2.5 units in the last place, without a branch: e^y − 1 for y = −2|x| does not cancel if x is small. It is 2^n
// · (e^r − 1) + (2^n − 1) with |r| ≤ ln 2 / 2, and Taylor's series up to r^7. ln 2 in two parts (Cody and Waite,
// Software Manual for the Elementary Functions, 1980).
WEFT_FN float hyperbolic_tangent(float x) {
  const float magnitude = bits_of<float>(bits_of<std::uint32_t>(x) & 0x7fffffffu);
  const std::uint32_t sign = bits_of<std::uint32_t>(x) & 0x80000000u;
  const float y = -2.0f * (magnitude > 10.0f ? 10.0f : magnitude);  // NaN stays
  const float scaled = multiply_add(y, 0x1.715476p+0f, 0x1.8p23f);  // its last bits are y / ln 2, rounded
  const float n = scaled - 0x1.8p23f;
  const float r = multiply_add(n, 0x1.bd0106p-13f, multiply_add(n, -0x1.63p-1f, y));
  constexpr float kInverseFactorials[] = {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f};
  float sum = 1.0f / 5040;
  WEFT_UNROLL
  for (const float term : kInverseFactorials) sum = multiply_add(sum, r, term);
  const float two_to_n = bits_of<float>((bits_of<std::uint32_t>(scaled) << 23) + 0x3f800000u);
  const float less_one = multiply_add(two_to_n, multiply_add(sum * r, r, r), two_to_n - 1.0f);
  const float result = quotient_of_one_to_two(-less_one, less_one + 2.0f);
  return bits_of<float>((bits_of<std::uint32_t>(result) & 0x7fffffffu) | sign);  // -0 has a sign, too
}

// From bf16, f16 or f32, to the same type or to f32.
struct ElementMap {
  DataType from, to;
  float factor;    // scale / soft_cap, or scale without a cap
  float soft_cap;  // 0: none

  WEFT_FN std::uint32_t elements() const { return from == DataType::f32 ? 4 : 8; }  // of a pack of `from`
  WEFT_FN std::uint32_t widening() const { return to != from && to == DataType::f32 ? 2 : 1; }

  // A pack's elements, changed: one pack, or two if they are widened. Types are looked at once a pack.
  WEFT_FN void change(const Pack& pack, std::uint32_t (&words)[8]) const {
    float values[8] = {};
    if (from == DataType::f32) {
      WEFT_UNROLL
      for (std::uint32_t i = 0; i < 4; ++i) values[i] = bits_of<float>(pack.word[i]);
    } else {
      const bool bf16 = from == DataType::bf16;
      WEFT_UNROLL
      for (std::uint32_t i = 0; i < 8; ++i) {
        const auto half = static_cast<std::uint16_t>(pack.word[i / 2] >> (i % 2 * 16));
        values[i] = bf16 ? bf16_to_f32(half) : f16_to_f32(half);
      }
    }
    WEFT_UNROLL
    for (std::uint32_t i = 0; i < 8; ++i) values[i] *= factor;
    if (soft_cap != 0) {
      WEFT_UNROLL
      for (std::uint32_t i = 0; i < 8; ++i) {
        if (i == 4 && from == DataType::f32) break;
        values[i] = soft_cap * hyperbolic_tangent(values[i]);
      }
    }
    WEFT_UNROLL
    for (std::uint32_t i = 0; i < 8; ++i) values[i] = canonical(values[i]);
    if (to == DataType::f32) {
      WEFT_UNROLL
      for (std::uint32_t i = 0; i < 8; ++i) words[i] = bits_of<std::uint32_t>(values[i]);
    } else {
      const bool bf16 = to == DataType::bf16;
      WEFT_UNROLL
      for (std::uint32_t i = 0; i < 4; ++i) {
        const std::uint32_t low = bf16 ? f32_to_bf16(values[2 * i]) : f32_to_f16(values[2 * i]);
        const std::uint32_t high = bf16 ? f32_to_bf16(values[2 * i + 1]) : f32_to_f16(values[2 * i + 1]);
        words[i] = low | high << 16;
      }
    }
  }
};

}  // namespace weft::detail
