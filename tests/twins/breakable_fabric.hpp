// The CPU fabric with things that can be broken one at a time. It takes the place of the library's in the executable of
// these tests, for all their communicators.
#pragma once

#include <atomic>
#include <cstddef>

namespace weft::detail {

// Between which ranks a bit is lost, and in which pack; none while `from` is −1. Likewise of copies, in what arrived.
// And which rank cannot fill its memory.
struct Break {
  std::atomic<int> from = -1, to = -1;
  std::atomic<std::size_t> pack = 0;
  std::atomic<int> copies_from = -1, copies_to = -1;
  std::atomic<int> fills_of = -1;
  // Whose result of an operation is wrong; none while it is −1.
  std::atomic<int> sums = -1, residuals = -1, all_to_alls = -1;
  std::atomic<bool> barriers = false;  // none waits
  std::atomic<int> few_blocks = -1;    // whose GPU takes fewer blocks than the others'
  std::atomic<int> splits_of = -1;     // who cannot split
  std::atomic<int> restless = -1;      // whose GPU does not come to rest
  std::atomic<int> stale = -1;         // who sends what it sent so many calls before
  std::atomic<std::size_t> calls_before = 0;
};
extern Break broken;

}  // namespace weft::detail

namespace weft::test {

inline constexpr int kRanks = 3;  // of the worlds of their tests

}  // namespace weft::test
