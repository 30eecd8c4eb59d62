// Crossings that have caused trouble elsewhere, the same for CPU ranks and GPU ranks.
#pragma once

#include <cstdint>
#include <vector>

#include "support/moves.hpp"

namespace weft::test {

// Groups of every size, counts of every shape in every kind of slot, every type. Rows have any width and distance, and
// are at any address.
std::vector<Move> crossings_of_every_shape(int ranks);

// Counts of ranks in groups: no rows, as many on each rank, rows of one group alone, fewer than a group has ranks, one
// rank without any.
std::vector<std::vector<std::int32_t>> shapes_of(int ranks, int group_ranks);

// Rows that take many rounds of small slots.
std::vector<Move> long_crossings(int ranks, std::int32_t rows);

}  // namespace weft::test
