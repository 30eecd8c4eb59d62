// Wire format "escaped": rows that must stay bit-exact, at the price of 4 % of the wire. As with a sentinel, the last
// word of every atomic unit shows that the unit has arrived. If the payload's last word is the sentinel itself, another
// value is sent, and a mask behind the row marks the unit.
//
// A row is cut into segments of kColumns × kDepth packs. Pack `d` of column `c` is pack d · kColumns + c of the
// segment, so that neighbouring lanes handle neighbouring packs. Each column has one word of mask, with a bit for each
// atomic unit. There are fewer than 32 units, so the mask never equals the resting word.
#pragma once

#include <cstdint>

#include "base/function.hpp"
#include "base/pack.hpp"

namespace weft::detail {

template <int atomic_bytes>
struct Escaped {
  static constexpr std::uint32_t kColumns = 32;
  static constexpr std::uint32_t kDepth = 7;
  static constexpr std::uint32_t kSegmentPacks = kColumns * kDepth;
  static constexpr std::uint32_t kMaskPacks = kColumns * sizeof(std::uint32_t) / sizeof(Pack);  // of a segment

  static constexpr std::uint32_t kUnits = 16 / atomic_bytes;
  static constexpr std::uint32_t kStride = 4 / kUnits;  // words of a unit
  static_assert(kDepth * kUnits < 32);

  // `depth`: the pack's place in its column.
  static WEFT_FN Pack encode(Pack payload, std::uint32_t depth, std::uint32_t& mask) {
    WEFT_UNROLL
    for (std::uint32_t unit = 0; unit < kUnits; ++unit) {
      std::uint32_t& last = payload.word[unit * kStride + kStride - 1];
      if (last != kRestWord) continue;
      last = 0;
      mask |= 1u << (depth * kUnits + unit);
    }
    return payload;
  }
  static WEFT_FN bool arrived(const Pack& pack) {
    bool all = true;
    WEFT_UNROLL
    for (std::uint32_t unit = 0; unit < kUnits; ++unit) all &= pack.word[unit * kStride + kStride - 1] != kRestWord;
    return all;
  }
  static WEFT_FN Pack decode(Pack pack, std::uint32_t depth, std::uint32_t mask) {
    WEFT_UNROLL
    for (std::uint32_t unit = 0; unit < kUnits; ++unit) {
      if ((mask >> (depth * kUnits + unit) & 1u) != 0) pack.word[unit * kStride + kStride - 1] = kRestWord;
    }
    return pack;
  }
};

}  // namespace weft::detail
