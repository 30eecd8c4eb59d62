// Wire format "sentinel": payload of a floating type shows its own arrival. Memory rests at all ones, a NaN that the
// writer never sends. (The idea is TensorRT-LLM's "Lamport" kernels'; they rest at −0, which costs the sign of zero. A
// NaN costs a NaN's payload, which sums do not keep anyway.)
//
// One word of every atomic unit is enough to show that the unit has arrived, and only that word has to be cleaned. The
// comparison is bitwise: a floating comparison would flush, or call NaN unequal to itself.
#pragma once

#include <cstdint>

#include "base/function.hpp"
#include "base/pack.hpp"
#include "numeric/numeric.hpp"
#include "weft/types.hpp"

namespace weft::detail {

template <DataType type>
struct Sentinel {
  static constexpr int kPayloadBytes = 16;

  // A word of two 16-bit NaNs, or of one 32-bit NaN, in place of the sentinel.
  static constexpr std::uint32_t kNanWord = size_of(type) == 2 ? (kNan16 * 0x10001u) : kNanF32;

  template <int atomic_bytes>
  static WEFT_FN Pack encode(Pack payload, std::uint32_t /*epoch*/) {
    constexpr int stride = atomic_bytes / 4;
    WEFT_UNROLL
    for (int i = stride - 1; i < 4; i += stride) {
      if (payload.word[i] == kRestWord) payload.word[i] = kNanWord;
    }
    return payload;
  }

  template <int atomic_bytes>
  static WEFT_FN bool arrived(const Pack& pack, std::uint32_t /*epoch*/) {
    constexpr int stride = atomic_bytes / 4;
    bool all = true;
    WEFT_UNROLL
    for (int i = stride - 1; i < 4; i += stride) all &= pack.word[i] != kRestWord;
    return all;
  }

  static WEFT_FN Pack decode(const Pack& pack) { return pack; }
};

}  // namespace weft::detail
