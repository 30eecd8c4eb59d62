#include "oracle/number.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace weft::oracle {
namespace {

// The bits of a finite number that is not negative, in a format without an end: exponents go on where others have
// infinity. Significand and unit are integers, so a tie is seen exactly.
std::uint64_t rounded(int bias, int fraction_bits, double magnitude) {
  const auto bits = std::bit_cast<std::uint64_t>(magnitude);
  const int exponent = static_cast<int>(bits >> 52) - 1023;
  if (exponent == -1023) return 0;  // zero, or less than any format here can tell from it
  const std::uint64_t significand = (bits & ((1ull << 52) - 1)) | 1ull << 52;
  const int binade = std::max(exponent, 1 - bias);  // subnormals have the unit of the lowest binade
  const int dropped = std::min(52 - fraction_bits + binade - exponent, 54);
  const std::uint64_t half = 1ull << (dropped - 1), rest = significand & (2 * half - 1);
  const std::uint64_t units = significand >> dropped;
  const bool up = (rest > half) | ((rest == half) & (units % 2 == 1));  // without a branch, as it is taken at random
  // A carry moves up a binade.
  return (static_cast<std::uint64_t>(binade + bias - 1) << fraction_bits) + units + (up ? 1 : 0);
}

}  // namespace

Format format_of(Type type) {
  if (type.name == Type::bf16) return {8, 7};
  if (type.name == Type::f16) return {5, 10};
  return {8, 23};
}

std::size_t bytes_of(Type type) {
  if (type.name == Type::bf16 || type.name == Type::f16) return 2;
  if (type.name == Type::i64) return 8;
  return type.name == Type::u8 ? 1 : 4;
}

std::int64_t integer_of(Type type, std::uint64_t bits) {
  if (type.name == Type::u8) return static_cast<std::uint8_t>(bits);
  if (type.name == Type::i32) return static_cast<std::int32_t>(bits);
  return static_cast<std::int64_t>(bits);
}

double value_of(Format format, std::uint32_t bits) {
  const std::uint32_t magnitude = bits & (format.sign_bit() - 1);
  const double sign = (bits & format.sign_bit()) != 0 ? -1 : 1;
  if (magnitude > format.infinity()) return std::numeric_limits<double>::quiet_NaN();
  if (magnitude == format.infinity()) return sign * std::numeric_limits<double>::infinity();
  const int exponent = static_cast<int>(magnitude >> format.fraction_bits);
  const double fraction = magnitude & ((1u << format.fraction_bits) - 1);
  const double one = 1u << format.fraction_bits;
  const int unit = std::max(exponent, 1) - format.bias() - format.fraction_bits;
  const auto scale = std::bit_cast<double>(static_cast<std::uint64_t>(unit + 1023) << 52);  // 2^unit, a normal number
  return sign * (exponent == 0 ? fraction : one + fraction) * scale;
}

std::uint32_t round_to(Format format, double value) {
  if (std::isnan(value)) return format.nan();
  const std::uint32_t sign = std::signbit(value) ? format.sign_bit() : 0;
  if (std::isinf(value)) return sign | format.infinity();
  const std::uint64_t bits = rounded(format.bias(), format.fraction_bits, std::fabs(value));
  return sign | static_cast<std::uint32_t>(std::min<std::uint64_t>(bits, format.infinity()));
}

std::uint8_t round_to_e4m3(double value) {
  if (std::isnan(value)) return 0x7f;
  const unsigned sign = std::signbit(value) ? 0x80 : 0;
  const std::uint64_t bits = rounded(7, 3, std::min(std::fabs(value), 448.0));
  return static_cast<std::uint8_t>(sign | bits);
}

RightBits right_in_f32(double value, double slack) {
  const Format f32 = format_of(Type::f32);
  const double magnitude = std::fabs(value), least = std::max(magnitude - slack, 0.0);
  return {round_to(f32, std::copysign(least, value)), round_to(f32, std::copysign(magnitude + slack, value))};
}

RightBits rounded_again(Format format, RightBits f32) {
  const auto round = [&](std::uint64_t bits) {
    return round_to(format, value_of(format_of(Type::f32), static_cast<std::uint32_t>(bits)));
  };
  return {round(f32.nearest), round(f32.farthest)};
}

// Sizes as constants, of which the compiler makes plain loads and stores.
std::uint64_t get(std::span<const std::byte> tensor, Type type, std::size_t index) {
  const std::size_t size = bytes_of(type);
  const std::byte* const from = tensor.data() + index * size;
  std::uint64_t bits = 0;
  if (size == 1) std::memcpy(&bits, from, 1);
  if (size == 2) std::memcpy(&bits, from, 2);
  if (size == 4) std::memcpy(&bits, from, 4);
  if (size == 8) std::memcpy(&bits, from, 8);
  return bits;
}

void put(std::span<std::byte> tensor, Type type, std::size_t index, std::uint64_t bits) {
  const std::size_t size = bytes_of(type);
  std::byte* const to = tensor.data() + index * size;
  if (size == 1) std::memcpy(to, &bits, 1);
  if (size == 2) std::memcpy(to, &bits, 2);
  if (size == 4) std::memcpy(to, &bits, 4);
  if (size == 8) std::memcpy(to, &bits, 8);
}

double number_at(std::span<const std::byte> tensor, Type type, std::size_t index) {
  const std::uint64_t bits = get(tensor, type, index);
  if (is_integer(type)) return static_cast<double>(integer_of(type, bits));
  return value_of(format_of(type), static_cast<std::uint32_t>(bits));
}

}  // namespace weft::oracle
