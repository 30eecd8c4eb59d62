#include "workloads/reference.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

namespace weft::cli {
namespace {

std::uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);  // finite: to nearest, ties to even
}

std::uint16_t to_f16(float value) {
  const auto sign = static_cast<std::uint16_t>(std::signbit(value) ? 0x8000u : 0u);
  const float magnitude = std::fabs(value);
  if (magnitude == 0) return sign;  // frexp gives 0 an ordinary exponent
  if (magnitude >= 65520.0f) return sign | 0x7c00u;
  int exponent = 0;
  std::frexp(magnitude, &exponent);
  const int last_place = std::max(exponent - 11, -24);  // exponent of the unit in the last place
  const auto units = static_cast<int>(std::nearbyint(std::ldexp(magnitude, -last_place)));
  return static_cast<std::uint16_t>(sign | (((last_place + 24) << 10) + units));
}

float from_f16(std::uint16_t bits) {
  const int exponent = bits >> 10 & 0x1f;
  const int fraction = bits & 0x3ff;
  const float magnitude = exponent == 31  ? (fraction == 0 ? INFINITY : NAN)
                          : exponent == 0 ? std::ldexp(static_cast<float>(fraction), -24)
                                          : std::ldexp(static_cast<float>(fraction + 1024), exponent - 25);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

template <class Word>
Word load(const std::byte* from, std::size_t index) {
  Word word;
  std::memcpy(&word, from + index * sizeof(Word), sizeof(Word));
  return word;
}

template <class Word>
void store(std::byte* to, std::size_t index, Word word) {
  std::memcpy(to + index * sizeof(Word), &word, sizeof(Word));
}

}  // namespace

void store_float(std::byte* to, std::size_t index, DataType type, float value) {
  if (type == DataType::bf16) store(to, index, to_bf16(value));
  if (type == DataType::f16) store(to, index, to_f16(value));
  if (type == DataType::f32) store(to, index, value);
}

double load_number(const std::byte* from, std::size_t index, DataType type) {
  switch (type) {
    case DataType::bf16:
      return std::bit_cast<float>(static_cast<std::uint32_t>(load<std::uint16_t>(from, index)) << 16);
    case DataType::f16:
      return from_f16(load<std::uint16_t>(from, index));
    case DataType::f32:
      return load<float>(from, index);
    case DataType::i32:
      break;
  }
  return load<std::int32_t>(from, index);
}

Fp8Scale fp8_scale(float largest, bool power_of_two) {
  const float most = std::max(largest, 1e-4f), scale = most / 448.0f;
  if (!power_of_two) return {scale, 448.0f / most};
  int exponent = 0;
  if (std::frexp(scale, &exponent) == 0.5f) --exponent;  // a power of two stays
  return {std::ldexp(1.0f, exponent), std::ldexp(1.0f, -exponent)};
}

namespace {

// The largest difference of two sums of `ranks` numbers in any order, if every addition rounds to the type.
double tolerance(const ReferenceArgs& args, std::size_t index) {
  if (args.type == DataType::i32 || args.op == ReduceOp::max) return 0;
  constexpr std::array<double, 3> rounding = {0x1p-8, 0x1p-11, 0x1p-24};  // half a unit in the last place
  double magnitudes = 0;
  for (int r = 0; r < args.ranks; ++r)
    magnitudes += std::fabs(pattern::number(args.data, args.type, pattern::hash(r, args.step, index)));
  return 2 * args.ranks * rounding[static_cast<std::size_t>(args.type)] * magnitudes;
}

}  // namespace

void fill(std::byte* buffer, std::size_t begin, std::size_t end, DataType type, Data data, int rank, int step) {
  for (std::size_t i = begin; i < end; ++i) {
    const auto h = pattern::hash(rank, step, i);
    if (type == DataType::i32) {
      store(buffer, i, pattern::integer(data, h));
    } else {
      store_float(buffer, i, type, pattern::number(data, type, h));
    }
  }
}

void reduce_reference(const ReferenceArgs& args, std::size_t begin, std::size_t end, std::byte* result) {
  const bool sum = args.op == ReduceOp::sum;
  for (std::size_t i = begin; i < end; ++i) {
    if (args.type == DataType::i32) {
      std::uint32_t total = pattern::integer(args.data, pattern::hash(0, args.step, i));
      for (int r = 1; r < args.ranks; ++r) {
        const std::uint32_t next = pattern::integer(args.data, pattern::hash(r, args.step, i));
        const bool larger = static_cast<std::int32_t>(next) > static_cast<std::int32_t>(total);
        total = sum ? total + next : (larger ? next : total);
      }
      store(result, i, total);
    } else {
      float total = pattern::number(args.data, args.type, pattern::hash(0, args.step, i));
      for (int r = 1; r < args.ranks; ++r) {
        const float next = pattern::number(args.data, args.type, pattern::hash(r, args.step, i));
        total = sum ? total + next : std::max(total, next);
      }
      store_float(result, i, args.type, total);
    }
  }
}

std::string compare(const ReferenceArgs& args, std::span<const std::byte> reference, std::span<const std::byte> got,
                    bool exact, std::size_t begin) {
  if (std::memcmp(reference.data(), got.data(), reference.size()) == 0) return {};
  const std::size_t width = size_of(args.type);
  const std::size_t count = reference.size() / width;
  std::size_t wrong = 0;
  std::size_t first = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (std::memcmp(reference.data() + i * width, got.data() + i * width, width) == 0) continue;
    const double difference =
        std::fabs(load_number(reference.data(), i, args.type) - load_number(got.data(), i, args.type));
    if (!exact && difference <= tolerance(args, begin + i)) continue;  // false for NaN
    if (wrong++ == 0) first = i;
  }
  if (wrong == 0) return {};
  return fmt::format("{} of {} elements wrong, first [{}]: {} instead of {}", wrong, count, first,
                     load_number(got.data(), first, args.type), load_number(reference.data(), first, args.type));
}

}  // namespace weft::cli
