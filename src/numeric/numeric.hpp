// Element types as the sums see them: exact widening to f32, one rounding back, defined results for NaN and −0.
// The same bits on CPU and GPU.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "base/function.hpp"
#include "weft/types.hpp"

#if defined(__CUDACC__)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include "team/ptx.cuh"
#endif

namespace weft::detail {

template <class To, class From>
WEFT_FN To bits_of(From value) {
#if defined(__CUDA_ARCH__)
  To to;
  __builtin_memcpy(&to, &value, sizeof(to));
  return to;
#else
  return std::bit_cast<To>(value);
#endif
}

// The number of the lowest set bit of a word that is not 0.
WEFT_FN std::uint32_t lowest_bit(std::uint32_t word) {
#if defined(__CUDA_ARCH__)
  return static_cast<std::uint32_t>(__ffs(static_cast<int>(word)) - 1);
#else
  return static_cast<std::uint32_t>(std::countr_zero(word));
#endif
}

WEFT_FN std::uint32_t count_bits(std::uint32_t word) {
#if defined(__CUDA_ARCH__)
  return static_cast<std::uint32_t>(__popc(static_cast<int>(word)));
#else
  return static_cast<std::uint32_t>(std::popcount(word));
#endif
}

inline constexpr std::uint32_t kNanF32 = 0x7fffffffu;  // the NaN of NVIDIA's adders
inline constexpr std::uint16_t kNan16 = 0x7fffu;       // the NaN of NVIDIA's conversions to bf16 and f16

WEFT_FN bool is_nan(float value) {
  return value != value;
}

// f32 keeps its bits, except NaN: x86 propagates the operand's payload, GPUs do not.
WEFT_FN float canonical(float value) {
  return is_nan(value) ? bits_of<float>(kNanF32) : value;
}

WEFT_FN float bf16_to_f32(std::uint16_t bits) {
  return bits_of<float>(static_cast<std::uint32_t>(bits) << 16);
}

WEFT_FN std::uint16_t f32_to_bf16(float value) {
#if defined(__CUDA_ARCH__)
  return __bfloat16_as_ushort(__float2bfloat16_rn(value));
#else
  const auto bits = bits_of<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;  // to nearest, ties to even
  return static_cast<std::uint16_t>(is_nan(value) ? kNan16 : rounded);
#endif
}

WEFT_FN float f16_to_f32(std::uint16_t bits) {
#if defined(__CUDA_ARCH__)
  return __half2float(__ushort_as_half(bits));
#else
  const std::uint32_t sign = (bits & 0x8000u) << 16;
  const std::uint32_t magnitude = bits & 0x7fffu;
  if (magnitude >= 0x7c00u) return bits_of<float>(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);  // Inf, NaN
  // 2^112 moves f16's exponent range onto f32's; the product is exact, subnormals included.
  return bits_of<float>(sign | bits_of<std::uint32_t>(bits_of<float>(magnitude << 13) * 0x1p112f));
#endif
}

WEFT_FN std::uint16_t f32_to_f16(float value) {
#if defined(__CUDA_ARCH__)
  return __half_as_ushort(__float2half_rn(value));
#else
  const auto bits = bits_of<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>(bits >> 16 & 0x8000u);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return kNan16;
  if (magnitude >= 0x477ff000u) return static_cast<std::uint16_t>(sign | 0x7c00u);  // rounds to 65536 or more
  if (magnitude < 0x38800000u) {  // subnormal in f16: let the f32 adder round at the right bit
    const float shifted = bits_of<float>(magnitude) + 0.5f;
    return static_cast<std::uint16_t>(sign | (bits_of<std::uint32_t>(shifted) - bits_of<std::uint32_t>(0.5f)));
  }
  const std::uint32_t rebased = magnitude - (112u << 23);
  return static_cast<std::uint16_t>(sign | (rebased + 0xfffu + (rebased >> 13 & 1u)) >> 13);
#endif
}

// e4m3 has no infinities. Values that are too large become the largest number, 448. NaN becomes the one without a sign,
// so that no byte is 0xff.
WEFT_FN std::uint32_t f32_to_e4m3(float value) {
#if defined(__CUDA_ARCH__)
  return __nv_cvt_float_to_fp8(value, __NV_SATFINITE, __NV_E4M3);
#else
  const auto bits = bits_of<std::uint32_t>(value);
  const std::uint32_t sign = bits >> 24 & 0x80u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return 0x7fu;
  if (magnitude >= bits_of<std::uint32_t>(448.0f)) return sign | 0x7eu;
  if (magnitude < bits_of<std::uint32_t>(0x1p-6f)) {  // subnormal in e4m3: let the f32 adder round at the right bit
    return sign | (bits_of<std::uint32_t>(bits_of<float>(magnitude) + 0x1p14f) - bits_of<std::uint32_t>(0x1p14f));
  }
  const std::uint32_t rebased = magnitude - (120u << 23);
  return sign | (rebased + 0x7ffffu + (rebased >> 20 & 1u)) >> 20;
#endif
}

// Two e4m3 in the lower half of a word: one instruction on the GPU.
WEFT_FN std::uint32_t f32_to_e4m3(float low, float high) {
#if defined(__CUDA_ARCH__)
  return __nv_cvt_float2_to_fp8x2({low, high}, __NV_SATFINITE, __NV_E4M3);
#else
  return f32_to_e4m3(low) | f32_to_e4m3(high) << 8;
#endif
}

// Rounded once, on every machine.
WEFT_FN float multiply_add(float a, float b, float c) {
#if defined(__CUDA_ARCH__)
  return __fmaf_rn(a, b, c);
#else
  return std::fma(a, b, c);
#endif
}

// Rounded once, whatever the compiler's flags turn `/` and `sqrt` into.
WEFT_FN float quotient(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fdiv_rn(a, b);
#else
  return a / b;
#endif
}
WEFT_FN float square_root(float value) {
#if defined(__CUDA_ARCH__)
  return __fsqrt_rn(value);
#else
  return std::sqrt(value);
#endif
}

// The larger number; NaN is no number.
WEFT_FN float max_number(float a, float b) {
#if defined(__CUDA_ARCH__)
  return fmaxf(a, b);
#else
  return b > a || is_nan(a) ? b : a;
#endif
}

WEFT_FN float max_defined(float a, float b) {
#if defined(__CUDA_ARCH__)
  return ptx::max_nan(a, b);
#else
  if (is_nan(a) || is_nan(b)) return bits_of<float>(kNanF32);
  if (a == b) return bits_of<float>(bits_of<std::uint32_t>(a) & bits_of<std::uint32_t>(b));  // +0 over −0
  return a > b ? a : b;
#endif
}

// The larger ones of two pairs of 16-bit magnitudes; NaN is no number.
template <class E>
WEFT_FN std::uint32_t larger_magnitudes_of(std::uint32_t a, std::uint32_t b) {
  const auto larger = [&](std::uint32_t shift) {
    const std::uint32_t x = a >> shift & 0xffffu, y = b >> shift & 0xffffu;
    const float of_x = E::widen(static_cast<std::uint16_t>(x)), of_y = E::widen(static_cast<std::uint16_t>(y));
    return (of_y > of_x || is_nan(of_x) ? y : x) << shift;
  };
  return larger(0) | larger(16);
}

// Two 16-bit numbers without their signs.
WEFT_FN constexpr std::uint32_t magnitudes(std::uint32_t pair) {
  return pair & 0x7fff7fffu;
}

// Storage type, accumulator type and the two conversions of each element type.
template <DataType>
struct Element;

template <>
struct Element<DataType::bf16> {
  using Storage = std::uint16_t;
  using Accumulator = float;
  static WEFT_FN float widen(Storage bits) { return bf16_to_f32(bits); }
  static WEFT_FN Storage narrow(float value) { return f32_to_bf16(value); }
  // Two elements in one word: one instruction on the GPU.
  static WEFT_FN std::uint32_t narrow(float low, float high) {
#if defined(__CUDA_ARCH__)
    return bits_of<std::uint32_t>(__floats2bfloat162_rn(low, high));
#else
    return f32_to_bf16(low) | static_cast<std::uint32_t>(f32_to_bf16(high)) << 16;
#endif
  }
  // The larger ones of two pairs of magnitudes; NaN is no number.
  static WEFT_FN std::uint32_t larger_magnitudes(std::uint32_t a, std::uint32_t b) {
#if defined(__CUDA_ARCH__)
    return bits_of<std::uint32_t>(__hmax2(bits_of<__nv_bfloat162>(a), bits_of<__nv_bfloat162>(b)));
#else
    return larger_magnitudes_of<Element>(a, b);
#endif
  }
};
template <>
struct Element<DataType::f16> {
  using Storage = std::uint16_t;
  using Accumulator = float;
  static WEFT_FN float widen(Storage bits) { return f16_to_f32(bits); }
  static WEFT_FN Storage narrow(float value) { return f32_to_f16(value); }
  static WEFT_FN std::uint32_t narrow(float low, float high) {
#if defined(__CUDA_ARCH__)
    return bits_of<std::uint32_t>(__floats2half2_rn(low, high));
#else
    return f32_to_f16(low) | static_cast<std::uint32_t>(f32_to_f16(high)) << 16;
#endif
  }
  // The larger ones of two pairs of magnitudes; NaN is no number.
  static WEFT_FN std::uint32_t larger_magnitudes(std::uint32_t a, std::uint32_t b) {
#if defined(__CUDA_ARCH__)
    return bits_of<std::uint32_t>(__hmax2(bits_of<__half2>(a), bits_of<__half2>(b)));
#else
    return larger_magnitudes_of<Element>(a, b);
#endif
  }
};
template <>
struct Element<DataType::f32> {
  using Storage = std::uint32_t;
  using Accumulator = float;
  static WEFT_FN float widen(Storage bits) { return bits_of<float>(bits); }
  static WEFT_FN Storage narrow(float value) { return bits_of<std::uint32_t>(canonical(value)); }
};
// Sums are modulo a power of two, which signed arithmetic would leave undefined.
template <>
struct Element<DataType::i32> {
  using Storage = std::uint32_t;
  using Accumulator = std::uint32_t;
  static WEFT_FN std::uint32_t widen(Storage bits) { return bits; }
  static WEFT_FN Storage narrow(std::uint32_t value) { return value; }
};
template <>
struct Element<DataType::i64> {
  using Storage = std::uint64_t;
  using Accumulator = std::uint64_t;
  static WEFT_FN std::uint64_t widen(Storage bits) { return bits; }
  static WEFT_FN Storage narrow(std::uint64_t value) { return value; }
};
// An accumulator has room for the exact sum of all ranks.
template <>
struct Element<DataType::u8> {
  using Storage = std::uint8_t;
  using Accumulator = std::uint32_t;
  static WEFT_FN std::uint32_t widen(Storage bits) { return bits; }
  static WEFT_FN Storage narrow(std::uint32_t value) { return static_cast<Storage>(value); }
};

// Accumulators of integers have a sign. larger(): of two accumulators. flipped(): turns an order round, and is its own
// inverse: a minimum is the flipped maximum of flipped values. divided(): by a number of ranks.
WEFT_FN float larger(float a, float b) {
  return max_defined(a, b);
}
WEFT_FN std::uint32_t larger(std::uint32_t a, std::uint32_t b) {
  return static_cast<std::int32_t>(a) > static_cast<std::int32_t>(b) ? a : b;
}
WEFT_FN std::uint64_t larger(std::uint64_t a, std::uint64_t b) {
  return static_cast<std::int64_t>(a) > static_cast<std::int64_t>(b) ? a : b;
}
WEFT_FN float flipped(float value) {
  return bits_of<float>(bits_of<std::uint32_t>(value) ^ 0x80000000u);
}
WEFT_FN std::uint32_t flipped(std::uint32_t value) {
  return ~value;
}
WEFT_FN std::uint64_t flipped(std::uint64_t value) {
  return ~value;
}
WEFT_FN float divided(float value, std::uint32_t ranks) {
  return quotient(value, static_cast<float>(ranks));
}
WEFT_FN std::uint32_t divided(std::uint32_t value, std::uint32_t ranks) {
  return static_cast<std::uint32_t>(static_cast<std::int32_t>(value) / static_cast<std::int32_t>(ranks));
}
WEFT_FN std::uint64_t divided(std::uint64_t value, std::uint32_t ranks) {
  return static_cast<std::uint64_t>(static_cast<std::int64_t>(value) / static_cast<std::int64_t>(ranks));
}

}  // namespace weft::detail
