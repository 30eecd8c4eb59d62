// The CPU fabric with parts that can be broken one at a time. In the executable of these tests it replaces the
// library's fabric for all communicators.
#pragma once

#include <atomic>
#include <cstddef>

namespace weft::detail {

// A bit of pack `pack` is lost between two ranks; none while `from` is −1. The same for copies, whose arrived bytes
// change. And the rank that cannot fill its memory.
struct Break {
  std::atomic<int> from = -1, to = -1;
  std::atomic<std::size_t> pack = 0;
  std::atomic<int> copies_from = -1, copies_to = -1;
  std::atomic<int> fills_of = -1;
  // The rank whose result of an operation is wrong; −1: none.
  std::atomic<int> sums = -1, residuals = -1, all_to_alls = -1;
  std::atomic<bool> barriers = false;  // no barrier waits
  std::atomic<int> few_blocks = -1;    // the rank whose GPU takes fewer blocks than the others
  std::atomic<int> splits_of = -1;     // the rank that cannot split
  std::atomic<int> restless = -1;      // the rank whose GPU does not come to rest
  std::atomic<int> stale = -1;         // the rank that sends stale data, of so many calls before
  std::atomic<std::size_t> calls_before = 0;
};
extern Break broken;

// Kernels that this thread's rank has run, those in clusters of two, and among these those of an odd number of blocks.
struct Launches {
  int kernels = 0, in_pairs = 0, odd = 0;
};
extern thread_local Launches launches;

}  // namespace weft::detail

namespace weft::test {

inline constexpr int kRanks = 3;  // of these tests' worlds

}  // namespace weft::test
