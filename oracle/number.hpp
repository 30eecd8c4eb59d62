// The oracle says what each operation must give, by formulas alone. It includes the standard library and nothing of the
// project, so the library's mistakes are not in it, too. Tests, `weft bench` and `weft verify` compare with it.
// tests/oracle has cases computed by hand, and seeded bugs that they must find.
//
// Numbers as bits: values are doubles, rounding counts units in the last place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

namespace weft::oracle {

using Bytes = std::vector<std::byte>;

template <class E>
concept Enum = std::is_enum_v<E>;

// Element types. Any enum converts, by the names of its enumerators: the oracle does not know the library's. So do the
// other choices below.
struct Type {
  enum Name : std::uint8_t { bf16, f16, f32, i32, i64, u8 };
  template <Enum E>
  constexpr Type(E of)
      : name(of == E::bf16  ? bf16
             : of == E::f16 ? f16
             : of == E::f32 ? f32
             : of == E::i32 ? i32
             : of == E::i64 ? i64
                            : u8) {}
  constexpr bool operator==(const Type&) const = default;
  Name name;
};

// A format of IEEE 754's kind: a sign, exponent_bits with a bias, fraction_bits.
struct Format {
  int exponent_bits, fraction_bits;

  constexpr int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  constexpr std::uint32_t sign_bit() const { return 1u << (exponent_bits + fraction_bits); }
  constexpr std::uint32_t infinity() const { return ((1u << exponent_bits) - 1) << fraction_bits; }
  constexpr std::uint32_t nan() const { return sign_bit() - 1; }  // all ones but the sign
};
Format format_of(Type type);      // of bf16, f16 or f32
std::size_t bytes_of(Type type);  // of an element
constexpr bool is_integer(Type type) {
  return type.name == Type::i32 || type.name == Type::i64 || type.name == Type::u8;
}
// The number that the bits of an integer mean: u8 has no sign.
std::int64_t integer_of(Type type, std::uint64_t bits);

double value_of(Format format, std::uint32_t bits);
// To nearest, ties to even; every NaN becomes the one of the format. A result beyond the largest number is infinite.
std::uint32_t round_to(Format format, double value);
// e4m3 has no infinities: larger numbers become ±448, and every NaN 0x7f.
std::uint8_t round_to_e4m3(double value);

// The bits that are right for a number. If a rule leaves a choice, they are those of several numbers with one sign: of
// the nearest to zero, the farthest, and all between.
struct RightBits {
  std::uint64_t nearest, farthest;
  constexpr bool contain(std::uint64_t bits) const { return nearest <= bits && bits <= farthest; }
  constexpr bool operator==(const RightBits&) const = default;
};
// Of f32, for a number that is off by `slack` at most before it is rounded.
RightBits right_in_f32(double value, double slack);
// … when a number of f32 is rounded once more.
RightBits rounded_again(Format format, RightBits f32);

// Element `index` of a tensor, little endian. put() takes as many low bits as an element has.
std::uint64_t get(std::span<const std::byte> tensor, Type type, std::size_t index);
void put(std::span<std::byte> tensor, Type type, std::size_t index, std::uint64_t bits);
// Element `index` as a number. Of i64 the nearest that a double has.
double number_at(std::span<const std::byte> tensor, Type type, std::size_t index);

}  // namespace weft::oracle
