#include "oracle/fp8.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace weft::oracle {
namespace {

void cast(std::span<const float> values, float inverse, Bytes& to) {
  for (const float value : values) {
    const float scaled = value * inverse;
    to.push_back(static_cast<std::byte>(round_to_e4m3(scaled)));
  }
}

}  // namespace

Scale scale_of(float largest, bool power_of_two, float floor) {
  const float amax = std::max(largest, floor);
  const float scale = amax / 448.0f;
  if (!power_of_two) return {scale, 448.0f / amax};
  if (std::isinf(amax)) return {0x1p127f, 0};
  int exponent = 0;
  const float significand = std::frexp(scale, &exponent);  // from 0.5 on, less than 1
  if (significand == 0.5f) --exponent;                     // a power of two stays what it is
  return {std::ldexp(1.0f, exponent), std::ldexp(1.0f, -exponent)};
}

Bytes stored(Scale scale, Scales how) {
  if (how == Scales::ue8m0) return {static_cast<std::byte>(std::ilogb(scale.scale) + 127)};
  Bytes bytes(4);
  std::memcpy(bytes.data(), &scale.scale, bytes.size());
  return bytes;
}

float largest_magnitude(std::span<const float> values) {
  float most = 0;
  for (const float value : values) most = std::fmax(most, std::fabs(value));
  return most;
}

double number_of_e4m3(std::uint8_t bits) {
  const int exponent = bits >> 3 & 15, fraction = bits & 7;
  const double magnitude = exponent == 0 ? std::ldexp(fraction, -9) : std::ldexp(8 + fraction, exponent - 10);
  return (bits & 0x80) != 0 ? -magnitude : magnitude;
}

Fp8Row cast_row(std::span<const float> row, std::size_t columns, Scales scales, float floor) {
  Fp8Row result;
  for (std::size_t begin = 0; begin < row.size(); begin += columns) {
    const auto group = row.subspan(begin, columns);
    const Scale scale = scale_of(largest_magnitude(group), scales != Scales::f32, floor);
    cast(group, scale.inverse, result.numbers);
    const Bytes bytes = stored(scale, scales);
    result.scales.insert(result.scales.end(), bytes.begin(), bytes.end());
  }
  return result;
}

Bytes cast_row(std::span<const float> row, float scale) {
  Bytes numbers;
  cast(row, 1.0f / scale, numbers);
  return numbers;
}

}  // namespace weft::oracle
