// Lists of gathers and scatters, the same for CPU ranks and GPU ranks.
#pragma once

#include <vector>

#include "support/moves.hpp"

namespace weft::test {

// Given slots are as long as each rank's rows and up to six more, so neither rows nor other slots determine them.
Move with_slots(Move move, int ranks);

// Equal and ragged, and crossings; short and long, in place or not, with rows apart or side by side.
std::vector<Move> random_moves(int count, int ranks, std::uint32_t seed);

// Equal forms of rows around packs, lines, slots and chunks. `longest`: one more width, in chunks of 16 KiB; copies are
// filled with `copied`.
std::vector<Move> moves_around_packs(int ranks, std::size_t longest, Fill copied);

// Every type and operation, in place or not.
std::vector<Move> reduces_to_each_root(int ranks);

// Gathers and scatters of one root, in place or not.
std::vector<Move> rows_of_each_root(int ranks);

// Rows of any shape, with strides and addresses of any kind. Half of them have whole packs, less than `packs`, and half
// any number of elements, less than `elements`. `most_blocks`: of grids, which are any; 0: the usual ones.
struct AnyShape {
  std::uint32_t packs, elements;
  int most_blocks = 0;
};
std::vector<Move> equal_moves_of_any_shape(int ranks, const AnyShape& shape);
// Counts that ranks read, in every kind of slot; in an all-gather up to eight tensors: hidden state, scales, ids,
// weights …
std::vector<Move> ragged_moves_of_any_shape(int count, int ranks, const AnyShape& shape);

}  // namespace weft::test
