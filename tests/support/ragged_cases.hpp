// Calls with counts that have caused trouble elsewhere, the same for CPU ranks and GPU ranks.
#pragma once

#include <cstdint>
#include <vector>

#include "support/moves.hpp"

namespace weft::test {

inline constexpr Kind kRagged[] = {Kind::all_gather_v, Kind::reduce_scatter_v};

struct SlotChoice {
  Padding kind;
  std::size_t rows;
};
inline constexpr SlotChoice kSlots[] = {
    {Padding::none, 0}, {Padding::aligned, 4}, {Padding::max, 0}, {Padding::fixed, 41}, {Padding::per_rank, 0}};

// No rows, rows on only one rank, fewer rows than ranks, most rows on one rank, all alike. In every kind of slot, with
// rows of a pack and of an odd width, with exact and with spare room.
std::vector<Move> moves_of_every_shape(int ranks);

// Rows that ranks share by both rules: none, one, one less and one more than there are ranks, many.
std::vector<Move> moves_of_shared_rows(int ranks);

// Some of both, whose counts all ranks, or every other one, have on the host.
std::vector<Move> moves_with_counts_on_host(int ranks);

// One to eight tensors of any number of bytes, odd ones included, each with a stride and an address of its own.
std::vector<Move> moves_of_many_tensors(int ranks);

// The same rows by an equal operation, and by a ragged one with equal counts.
struct AlikeMoves {
  Move equal, ragged;
};
std::vector<AlikeMoves> alike_moves(int ranks);

// Numbers that do not fit, on three ranks with capacities for four rows each.
struct Misfit {
  const char* name;
  const char* reason;  // in the message of the rank that finds it
  Kind kind;
  std::vector<std::int32_t> counts;  // counts that the ranks read
  Padding padding = Padding::none;
  int detected_by = -1;                  // the only rank whose capacity is exceeded; −1: every rank's is
  std::vector<std::int32_t> slots = {};  // slots that they read, if slots are given

  // Only the rank whose capacity is exceeded knows it: the others may have written the rows that fit.
  bool leaves_untouched(int rank) const { return detected_by < 0 || detected_by == rank; }
};
inline constexpr int kMisfitRanks = 3;
std::vector<Misfit> misfits();

// A call that fits, and the content that a rank finds instead, of which nothing may change.
struct MisfitMove {
  RankMove capacity, untouched;
};
MisfitMove prepare(const Misfit& misfit, int rank, const Launch& launch = {});

}  // namespace weft::test
