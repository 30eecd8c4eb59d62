// Measures every pair of ranks by itself: copies each way, and all-reduces between the two.
#pragma once

#include <memory>

#include "workloads/measure.hpp"

namespace weft::cli {

// The number of splits that all pairs need. In each split every rank meets another one. A world of two is its own pair.
constexpr int pair_rounds(int ranks) {
  return ranks <= 2 ? 0 : ranks - 1 + ranks % 2;
}
// The rank that `rank` meets in `round`, or −1 (the number of ranks is odd).
int partner(int rank, int round, int ranks);

// Collective, like Bench. The world's communicator must have room for pair_rounds() splits; this makes them.
class PairBench {
 public:
  virtual ~PairBench() = default;
  // Copies `count` elements of i32 from rank to rank, and checks all bits.
  virtual Result copy(int from, int to, std::size_t count, int samples) = 0;
  // Sums bf16.
  virtual Result all_reduce(int a, int b, std::size_t count, int samples) = 0;
};
std::unique_ptr<PairBench> open_pair_bench(Ranks& ranks, std::size_t max_bytes);

}  // namespace weft::cli
