// Every two ranks by themselves: copies each way, and all-reduces between the two.
#pragma once

#include <memory>

#include "workloads/measure.hpp"

namespace weft::cli {

// Splits that all pairs need: in each, every rank meets another one. A world of two is its own pair.
constexpr int pair_rounds(int ranks) {
  return ranks <= 2 ? 0 : ranks - 1 + ranks % 2;
}
// Whom `rank` meets in `round`; −1: nobody (an odd number of ranks).
int partner(int rank, int round, int ranks);

// Collective, as Bench is. The world's communicator must have room for pair_rounds() splits, and gets them.
class PairBench {
 public:
  virtual ~PairBench() = default;
  // `count` elements of i32 from rank to rank; all bits are checked.
  virtual Result copy(int from, int to, std::size_t count, int samples) = 0;
  // bf16 sum.
  virtual Result all_reduce(int a, int b, std::size_t count, int samples) = 0;
};
std::unique_ptr<PairBench> open_pair_bench(Ranks& ranks, std::size_t max_bytes);

}  // namespace weft::cli
