// The expected result of a reduction, bit for bit, written as slowly and obviously as possible. Values are doubles made
// by ldexp, and rounding counts units in the last place. Shares no code with the library.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

#include "weft/types.hpp"

namespace weft::test {

using Bytes = std::vector<std::byte>;

struct Format {
  int exponent_bits, fraction_bits;

  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  std::uint32_t sign_bit() const { return 1u << (exponent_bits + fraction_bits); }
  std::uint32_t infinity() const { return ((1u << exponent_bits) - 1) << fraction_bits; }
  std::uint32_t nan() const { return sign_bit() - 1; }  // all ones except the sign
};

inline Format format_of(DataType type) {
  return type == DataType::bf16 ? Format{8, 7} : type == DataType::f16 ? Format{5, 10} : Format{8, 23};
}

inline double value_of(Format f, std::uint32_t bits) {
  const std::uint32_t magnitude = bits & (f.sign_bit() - 1);
  const double sign = (bits & f.sign_bit()) != 0 ? -1 : 1;
  if (magnitude > f.infinity()) return std::numeric_limits<double>::quiet_NaN();
  if (magnitude == f.infinity()) return sign * std::numeric_limits<double>::infinity();
  const int exponent = static_cast<int>(magnitude >> f.fraction_bits);
  const double fraction = magnitude & ((1u << f.fraction_bits) - 1);
  const double one = 1u << f.fraction_bits;
  return sign * (exponent == 0 ? std::ldexp(fraction, 1 - f.bias() - f.fraction_bits)
                               : std::ldexp(one + fraction, exponent - f.bias() - f.fraction_bits));
}

// To nearest, ties to even (nearbyint's). Every NaN becomes the format's NaN.
inline std::uint32_t round_to(Format f, double value) {
  if (std::isnan(value)) return f.nan();
  const std::uint32_t sign = std::signbit(value) ? f.sign_bit() : 0;
  if (std::isinf(value)) return sign | f.infinity();
  if (value == 0) return sign;
  int exponent = 0;
  std::frexp(value, &exponent);                             // |value| in [2^(exponent − 1), 2^exponent)
  const int binade = std::max(exponent - 1, 1 - f.bias());  // subnormals share the units of the lowest binade
  const double unit = std::ldexp(1.0, binade - f.fraction_bits);
  const double units = std::nearbyint(std::fabs(value) / unit);
  const double bits = std::ldexp(1.0, f.fraction_bits) * (binade + f.bias() - 1) + units;  // a carry moves up a binade
  return sign | (bits >= f.infinity() ? f.infinity() : static_cast<std::uint32_t>(bits));
}

inline double larger(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<double>::quiet_NaN();
  if (a == b) return std::signbit(a) ? b : a;  // +0 over −0
  return a > b ? a : b;
}

// One element: the values of all ranks, in rank order.
inline std::uint32_t reduce_element(DataType type, ReduceOp op, std::span<const std::uint32_t> values) {
  if (type == DataType::i32) {
    std::uint32_t total = values[0];
    for (const std::uint32_t next : values.subspan(1)) {
      if (op == ReduceOp::sum) total += next;
      if (op == ReduceOp::max)
        total = static_cast<std::int32_t>(next) > static_cast<std::int32_t>(total) ? next : total;
    }
    return total;
  }
  const Format f = format_of(type);
  auto total = static_cast<float>(value_of(f, values[0]));
  for (const std::uint32_t next : values.subspan(1)) {
    const auto value = static_cast<float>(value_of(f, next));
    total = op == ReduceOp::sum ? total + value : static_cast<float>(larger(total, value));
  }
  return round_to(f, total);
}

inline std::uint32_t get(std::span<const std::byte> bytes, DataType type, std::size_t index) {
  std::uint32_t value = 0;
  std::memcpy(&value, bytes.data() + index * size_of(type), size_of(type));  // little endian
  return value;
}
inline void put(std::span<std::byte> bytes, DataType type, std::size_t index, std::uint32_t value) {
  std::memcpy(bytes.data() + index * size_of(type), &value, size_of(type));
}

// `inputs[rank]` holds `count` elements each.
inline Bytes reduce(DataType type, ReduceOp op, std::span<const Bytes> inputs) {
  Bytes result(inputs[0].size());
  std::vector<std::uint32_t> values(inputs.size());
  for (std::size_t i = 0; i < result.size() / size_of(type); ++i) {
    for (std::size_t rank = 0; rank < inputs.size(); ++rank) values[rank] = get(inputs[rank], type, i);
    put(result, type, i, reduce_element(type, op, values));
  }
  return result;
}

}  // namespace weft::test
