// Gathers and scatters of every kind in random order, for sequences of calls on CPU ranks and on GPUs.
#pragma once

#include <vector>

#include "support/moves.hpp"

namespace weft::test {

// Given slots are as long as each rank's rows and up to six more, so neither rows nor other slots determine them.
Move with_slots(Move move, int ranks);

// Equal and ragged, short and long, in place or not, with rows apart or side by side.
std::vector<Move> random_moves(int count, int ranks, std::uint32_t seed);

}  // namespace weft::test
