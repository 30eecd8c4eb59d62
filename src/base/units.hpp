// Bytes, in words.
#pragma once

#include <cstddef>

namespace weft::detail {

inline constexpr std::size_t kKiB = 1024, kMiB = 1024 * kKiB;

}  // namespace weft::detail
