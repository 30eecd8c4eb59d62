// The largest numbers of ranks and blocks.
#pragma once

#include <cstdint>

namespace weft::detail {

inline constexpr std::uint32_t kMaxRanks = 72;    // the largest NVLink domain there is (NVL72)
inline constexpr std::uint32_t kMaxBlocks = 256;  // blocks of one launch, the control block included

}  // namespace weft::detail
