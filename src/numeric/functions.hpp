// Functions of real numbers, with the same bits on CPU and GPU.
#pragma once

#include <cstdint>

#include "base/function.hpp"
#include "numeric/numeric.hpp"

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

// e^y = 2^n · (1 + less_one), for −87 ≤ y ≤ 0 and without a branch: |r| ≤ ln 2 / 2, and Taylor's series up to r^7. ln 2
// in two parts (Cody and Waite, Software Manual for the Elementary Functions, 1980).
struct Exponential {
  float two_to_n, less_one;
};
WEFT_FN Exponential exponential(float y) {
  const float scaled = multiply_add(y, 0x1.715476p+0f, 0x1.8p23f);  // its last bits are y / ln 2, rounded
  const float n = scaled - 0x1.8p23f;
  const float r = multiply_add(n, 0x1.bd0106p-13f, multiply_add(n, -0x1.63p-1f, y));
  constexpr float kInverseFactorials[] = {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f};
  float sum = 1.0f / 5040;
  WEFT_UNROLL
  for (const float term : kInverseFactorials) sum = multiply_add(sum, r, term);
  return {bits_of<float>((bits_of<std::uint32_t>(scaled) << 23) + 0x3f800000u), multiply_add(sum * r, r, r)};
}

WEFT_FN float magnitude_of(float x) {
  return bits_of<float>(bits_of<std::uint32_t>(x) & 0x7fffffffu);
}

// Within 2.5 units in the last place: e^y − 1 for y = −2|x| does not cancel if x is small.
WEFT_FN float hyperbolic_tangent(float x) {
  const float magnitude = magnitude_of(x);
  const std::uint32_t sign = bits_of<std::uint32_t>(x) & 0x80000000u;
  const Exponential e = exponential(-2.0f * (magnitude > 10.0f ? 10.0f : magnitude));  // NaN stays
  const float less_one = multiply_add(e.two_to_n, e.less_one, e.two_to_n - 1.0f);
  const float result = quotient_of_one_to_two(-less_one, less_one + 2.0f);
  return bits_of<float>((bits_of<std::uint32_t>(result) & 0x7fffffffu) | sign);  // -0 has a sign, too
}

// x / (1 + e^−x), within 3 units in the last place. e^−|x| never overflows. Below −86 it is −0, which is off by 10^−35
// at most.
WEFT_FN float silu(float x) {
  constexpr float kMost = 86.0f;
  const float magnitude = magnitude_of(x);
  const Exponential e = exponential(-(magnitude > kMost ? kMost : magnitude));  // NaN stays
  const float power = multiply_add(e.two_to_n, e.less_one, e.two_to_n);
  const float result = quotient_of_one_to_two(x < 0.0f ? x * power : x, 1.0f + power);
  if (!(magnitude > kMost)) return result;
  return x > 0.0f ? x : -0.0f;
}

}  // namespace weft::detail
