// Gathers and scatters that end in a fault, the same for CPU ranks and GPU ranks.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "support/moves.hpp"

namespace weft::test {

// One call for each way in which ranks wait: for lines, sums, chunks, relays; with counts, and without rows. From rank
// 1 they only need its part in the call.
struct NamedMove {
  const char* name;
  Move move;
};
inline constexpr int kWaitingRanks = 3;
std::vector<NamedMove> waiting_moves();

// Two calls that differ in one property that ranks compare.
std::vector<std::pair<Move, Move>> differing_moves(int ranks);

}  // namespace weft::test
