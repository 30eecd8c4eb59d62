// Rows as e4m3 with scales: the rule of norms, and of rows that are cast on their way to experts.
#pragma once

#include "oracle/number.hpp"

namespace weft::oracle {

// The number that columns are divided by, and the one that they are multiplied by instead.
struct Scale {
  float scale, inverse;
};
// The floor of rows that go to experts. Norms have it from the caller.
inline constexpr float kFloor = 1e-4f;
// The scale of columns whose largest magnitude is `largest`: max(largest, floor) / 448. `power_of_two`: rounded up to
// one, 2^127 at most, whose inverse then is 0.
Scale scale_of(float largest, bool power_of_two, float floor = kFloor);
// Scales of a row, and how they are stored: as f32, or as one byte, the exponent + 127.
enum class Scales : std::uint8_t { f32, powers_of_two, ue8m0 };
Bytes stored(Scale scale, Scales how);
// NaN is no magnitude; without a number it is 0.
float largest_magnitude(std::span<const float> values);

// The number that an e4m3 stands for. There are no infinities: the largest exponent has numbers, too.
double number_of_e4m3(std::uint8_t bits);

struct Fp8Row {
  Bytes numbers, scales;
};
// Every `columns` columns have a scale.
Fp8Row cast_row(std::span<const float> row, std::size_t columns, Scales scales, float floor = kFloor);
// With one scale for everything, which is given.
Bytes cast_row(std::span<const float> row, float scale);

}  // namespace weft::oracle
