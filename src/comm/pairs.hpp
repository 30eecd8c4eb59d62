// Grids of launches in clusters of two.
#pragma once

#include <algorithm>

#include "weft/launch.hpp"

namespace weft::detail {

constexpr bool in_pairs(const Launch& launch) {
  return launch.cluster == 2;
}
// A grid's blocks without the one that would have no partner.
constexpr int whole_pairs(int blocks, const Launch& launch) {
  return in_pairs(launch) ? std::max(blocks - blocks % 2, 2) : blocks;
}

}  // namespace weft::detail
