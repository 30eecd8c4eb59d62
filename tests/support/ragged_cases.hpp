// Calls with counts that have been trouble elsewhere, the same for CPU ranks and GPU ranks.
#pragma once

#include <cstdint>
#include <vector>

#include "support/moves.hpp"

namespace weft::test {

inline constexpr Kind kRagged[] = {Kind::all_gather_v, Kind::reduce_scatter_v};

struct SlotChoice {
  SlotKind kind;
  std::size_t rows;
};
inline constexpr SlotChoice kSlots[] = {
    {SlotKind::dense, 0}, {SlotKind::aligned, 4}, {SlotKind::max, 0}, {SlotKind::fixed, 41}, {SlotKind::given, 0}};

// Nothing at all, one rank alone, fewer rows than ranks, one rank with most of them, all alike: in every kind of slot,
// with rows of a pack and of an odd width, with as much room as is needed and with more.
std::vector<Move> moves_of_every_shape(int ranks);

// Rows that ranks share by both rules: none, one, one less and one more than there are ranks, many.
std::vector<Move> moves_of_shared_rows(int ranks);

// One to eight tensors of any number of bytes, odd ones included, each with a stride and an address of its own.
std::vector<Move> moves_of_many_tensors(int ranks);

// The same rows by an equal form and, with counts that are all alike, by a ragged one.
struct AlikeMoves {
  Move equal, ragged;
};
std::vector<AlikeMoves> alike_moves(int ranks);

// Numbers that do not fit, on three ranks whose capacities are for four rows each.
struct Misfit {
  const char* name;
  const char* reason;  // of who finds it
  Kind kind;
  std::vector<std::int32_t> counts;  // that the ranks find
  SlotKind slot = SlotKind::dense;
  int detected_by = -1;                  // the only rank whose capacity is exceeded; −1: every rank's is
  std::vector<std::int32_t> slots = {};  // that they find, where they are given

  // A rank whose own capacity is exceeded is the only one to know: the others may have written what fits.
  bool leaves_untouched(int rank) const { return detected_by < 0 || detected_by == rank; }
};
inline constexpr int kMisfitRanks = 3;
std::vector<Misfit> misfits();

// A call that fits, and what a rank finds instead, of which nothing changes.
struct MisfitMove {
  RankMove capacity, untouched;
};
MisfitMove prepare(const Misfit& misfit, int rank, const Launch& launch = {});

}  // namespace weft::test
