// Rows of bf16 or f16 as e4m3: the scale that a number of columns share, and the cast.
#pragma once

#include <cstdint>

#include "base/pack.hpp"
#include "numeric/numeric.hpp"

namespace weft::detail {

// The least magnitude that a scale is made for, of rows on their way to experts. Norms have it from the caller.
inline constexpr float kFp8Floor = 1e-4f;

template <DataType type>
struct Fp8Cast {
  struct Scale {
    float scale, inverse;
  };
  // `floor`: rows of zeros have a scale, too. `power_of_two`: rounded up to one, for UE8M0; its biased exponent is the
  // scale's bits from the 23rd up.
  static WEFT_FN Scale scale_for(float largest, float floor, bool power_of_two) {
    const float amax = max_number(largest, floor);
    if (!power_of_two) return {amax / 448.0f, 448.0f / amax};
    const std::uint32_t up = (bits_of<std::uint32_t>(amax / 448.0f) + 0x7fffffu) >> 23;
    const std::uint32_t exponent = up < 254 ? up : 254;
    return {bits_of<float>(exponent << 23), bits_of<float>((254 - exponent) << 23)};
  }

  static WEFT_FN float column(const Pack& pack, std::uint32_t i) {
    return Element<type>::widen(static_cast<std::uint16_t>(pack.word[i / 2] >> (i % 2 * 16)));
  }
  // The larger ones of two magnitudes and those of a pack's columns, even and odd ones apart.
  static WEFT_FN std::uint32_t largest_pair(std::uint32_t most, const Pack& pack) {
    WEFT_UNROLL
    for (const std::uint32_t word : pack.word) most = Element<type>::larger_magnitudes(most, magnitudes(word));
    return most;
  }
  static WEFT_FN float largest(const Pack& pack) {
    const std::uint32_t most = largest_pair(0, pack);
    const auto half = [&](std::uint32_t shift) {
      return Element<type>::widen(static_cast<std::uint16_t>(most >> shift));
    };
    return max_number(half(0), half(16));
  }
  // Eight columns, half of a pack.
  static WEFT_FN void cast_half(const Pack& input, float inverse, std::uint32_t* words) {
    WEFT_UNROLL
    for (std::uint32_t word = 0; word < 2; ++word) {
      const auto pair = [&](std::uint32_t i) {
        return f32_to_e4m3(column(input, i) * inverse, column(input, i + 1) * inverse);
      };
      words[word] = pair(4 * word) | pair(4 * word + 2) << 16;
    }
  }
};

}  // namespace weft::detail
