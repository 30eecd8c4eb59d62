// All-reduces of every kind, the same for CPU ranks and GPU ranks.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "support/cases.hpp"

namespace weft::test {

// Counts around packs, shards and what an algorithm moves at once, where buffers have 1 KiB one-shot and 2 KiB
// two-shot.
std::vector<Case> cases_around_pieces(int ranks);
// In elements, there: a message of a kernel, or a chunk of every shard.
std::size_t piece_of(Algorithm algorithm, DataType type, int ranks);

// One seed for all algorithms: as their expectation is the same, so are their bits.
std::vector<Case> cases_of_all_data(std::span<const std::size_t> counts);

std::vector<Case> cases_of_all_alignments();

// Cases in which nothing is like the case before. One in four has up to `most` elements, the others few. `most_blocks`:
// of grids; 0: the usual ones.
struct Mix {
  std::uint32_t most, few;
  int most_blocks = 0;
};
std::vector<Case> mixed_cases(int count, std::uint32_t seed, const Mix& mix);

}  // namespace weft::test
