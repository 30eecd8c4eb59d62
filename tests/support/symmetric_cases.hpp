// Copies for outputs in symmetric memory, the same for CPU ranks and GPU ranks.
#pragma once

#include <cstddef>
#include <vector>

#include "support/moves.hpp"

namespace weft::test {

// Room for the outputs of any of these moves on up to eight ranks.
inline constexpr std::size_t kSymmetricBytes = std::size_t{16} << 20;

// Moves of every kind: shorter than lines and many chunks long, equal and ragged, one tensor and several, one busy
// rank, in place, rows apart, inputs at any address. Some outputs are no whole packs and take the ordinary way.
std::vector<Move> symmetric_moves(int ranks);

}  // namespace weft::test
