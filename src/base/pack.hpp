// A pack: sixteen bytes, the unit that algorithms count, address and move.
#pragma once

#include <cstdint>

namespace weft::detail {

struct alignas(16) Pack {
  std::uint32_t word[4];
};

// Packs of the longest row that a block can add up (ops/norm/rms_norm.hpp).
inline constexpr std::uint32_t kMostRowPacks = 8192;

// The contents of memory that waits for data. Both wire formats that ride in the data (sentinel.hpp, line.hpp) rest in
// the same state, so that they can share banks.
inline constexpr std::uint32_t kRestWord = 0xffffffffu;
inline constexpr Pack kRestPack{{kRestWord, kRestWord, kRestWord, kRestWord}};

}  // namespace weft::detail
