// Gathers and scatters of every kind in random order, for sequences of calls on CPU ranks and on GPUs.
#pragma once

#include <vector>

#include "support/moves.hpp"

namespace weft::test {

// Equal and ragged, of a few bytes and of many, in place or not, rows apart or side by side.
std::vector<Move> random_moves(int count, int ranks, std::uint32_t seed);

}  // namespace weft::test
