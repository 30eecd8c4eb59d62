// Gathers and scatters of every kind in random order, for sequences of calls on CPU ranks and on GPUs.
#pragma once

#include <vector>

#include "support/moves.hpp"

namespace weft::test {

// Where slots are given: as long as each rank's rows and up to six more, which neither rows nor other slots explain.
Move with_slots(Move move, int ranks);

// Equal and ragged, of a few bytes and of many, in place or not, rows apart or side by side.
std::vector<Move> random_moves(int count, int ranks, std::uint32_t seed);

}  // namespace weft::test
