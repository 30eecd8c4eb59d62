// A function of single elements, with the same bits on CPU and GPU: y = cap · tanh(x · (scale / cap)), rounded once.
#pragma once

#include <cstdint>

#include "base/function.hpp"
#include "base/pack.hpp"
#include "numeric/functions.hpp"
#include "numeric/numeric.hpp"
#include "weft/types.hpp"

namespace weft::detail {

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
