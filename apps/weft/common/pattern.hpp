// Inputs of the benchmark's ranks: a function of (rank, step, index) that gives the same values on CPU and GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "weft/types.hpp"

// Marks functions that the CPU's reference and the GPU's producer kernel share.
#if defined(__CUDACC__)
#define WEFT_PATTERN_FN __host__ __device__ inline
#else
#define WEFT_PATTERN_FN inline
#endif

namespace weft::cli {

// integers: −8 … 8. Their sums are exact in every type, so every algorithm must give the same bits. random: values of
// many magnitudes, all exact in the element type. Their sums need rounding: only sums in f32 in rank order have the
// reference's bits.
enum class Data : std::uint8_t { integers, random };

constexpr std::string_view name(Data data) {
  return data == Data::integers ? "integers" : "random";
}

namespace pattern {

// Mixes so well that neighbours, ranks and steps are unrelated (the finaliser of MurmurHash3).
WEFT_PATTERN_FN std::uint32_t hash(int rank, int step, std::uint64_t index) {
  std::uint64_t h = index * 0x9e3779b97f4a7c15ull + static_cast<std::uint64_t>(rank) * 0xd1b54a32d192ed03ull +
                    static_cast<std::uint64_t>(step + 1) * 0x8cb92ba72f3d8dd7ull;
  h = (h ^ (h >> 33)) * 0xff51afd7ed558ccdull;
  h = (h ^ (h >> 33)) * 0xc4ceb9fe1a85ec53ull;
  return static_cast<std::uint32_t>(h >> 32);
}

WEFT_PATTERN_FN float power_of_two(int exponent) {
  const auto bits = static_cast<std::uint32_t>(exponent + 127) << 23;
  float value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}

// Floating types: a value that the type holds exactly.
WEFT_PATTERN_FN float number(Data data, DataType type, std::uint32_t h) {
  if (data == Data::integers) return static_cast<float>(static_cast<int>(h % 17) - 8);
  const int low = static_cast<int>(h & 0xff);
  if (type == DataType::f32) return static_cast<float>(static_cast<std::int32_t>(h) >> 8) * power_of_two(low % 13 - 20);
  const auto significand = static_cast<float>(static_cast<int>(h >> 24) - 128);
  // f16's exponents end early, and sums of 72 ranks must stay finite.
  return significand * (type == DataType::f16 ? power_of_two(low % 10 - 8) : power_of_two(low % 28 - 20));
}

// Integer types take as many of the low bits as they have.
WEFT_PATTERN_FN std::uint64_t integer(Data data, std::uint32_t h) {
  if (data == Data::integers) return static_cast<std::uint64_t>(static_cast<std::int64_t>(h % 17) - 8);
  return static_cast<std::uint64_t>(h * 0x9e3779b9u) << 32 | h;
}

}  // namespace pattern

// Fills elements [begin, end) of `buffer` with the data that rank `rank` sends in step `step`.
void fill(std::byte* buffer, std::size_t begin, std::size_t end, DataType type, Data data, int rank, int step);

}  // namespace weft::cli
