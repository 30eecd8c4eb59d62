// What the all-reduce algorithms share: their arguments and their way of dividing work.
#pragma once

#include <cstdint>

#include "algorithms/handshake.hpp"
#include "algorithms/reduction.hpp"
#include "core/session.hpp"
#include "core/tensor.hpp"

namespace weft::detail {

struct AllReduceWork {
  const void* input;
  void* output;
  std::uint64_t count;  // elements
};

// The packs of one data thread: strided over the data blocks 1 … blocks − 1 (block 0 is the control block). Every phase
// of an algorithm divides its packs alike, so that a thread reads what it sent itself, and in-place works.
struct Share {
  std::uint64_t first, step;
};
template <Team T>
WEFT_FN Share share_of(T& team) {
  return {static_cast<std::uint64_t>(team.block_rank() - 1) * team.size() + team.thread_rank(),
          static_cast<std::uint64_t>(team.blocks() - 1) * team.size()};
}

// Loads what `batch` consecutive ranks put into their slots until all of it is there. Slot k of the area begins at
// `slots + k * packs`; `expected(k)` says whether rank `first + k` sends anything here.
template <class Wire, std::uint32_t batch, Team T, class Expected>
WEFT_FN bool receive(T& team, const Session& s, std::uint32_t phase, const Pack* slots, std::uint64_t packs,
                     std::uint32_t first, Expected expected, Pack (&received)[batch]) {
  const auto missing = [&](std::uint32_t k) {
    return expected(k) && !Wire::template arrived<T::kAtomicBytes>(received[k], s.epoch);
  };
  return wait(
      team, s, {.phase = phase},
      [&] {
        WEFT_UNROLL
        for (std::uint32_t k = 0; k < batch; ++k) {
          if (expected(k)) received[k] = team.load(slots + k * packs);
        }
        bool all = true;
        WEFT_UNROLL
        for (std::uint32_t k = 0; k < batch; ++k) all &= !missing(k);
        return all;
      },
      [&] {
        std::uint32_t late = first;
        WEFT_UNROLL
        for (std::uint32_t k = 0; k < batch; ++k) {
          if (missing(k)) late = first + k;
        }
        return late;
      });
}

// Receives one pack from every other rank and reduces them, with this rank's own, in rank order. What was read is put
// back to rest: the slot is armed for the call after the next.
template <class R, std::uint32_t batch, Team T>
WEFT_FN bool receive_and_reduce(T& team, const Session& s, std::uint32_t phase, Pack* slots, std::uint64_t packs,
                                const Pack& own, typename R::Accumulator& sum) {
  for (std::uint32_t first = 0; first < s.size(); first += batch) {
    const auto expected = [&](std::uint32_t k) { return first + k < s.size() && first + k != s.rank(); };
    Pack received[batch];
    Pack* const batch_slots = slots + first * packs;
    if (!receive<typename R::Wire, batch>(team, s, phase, batch_slots, packs, first, expected, received)) return false;
    WEFT_UNROLL
    for (std::uint32_t k = 0; k < batch; ++k) {
      if (first + k >= s.size()) break;
      const Pack payload = first + k == s.rank() ? own : R::Wire::decode(received[k]);
      if (first + k == 0) {
        R::begin(sum, payload);
      } else {
        R::add(sum, payload);
      }
    }
    WEFT_UNROLL
    for (std::uint32_t k = 0; k < batch; ++k) {
      if (expected(k)) team.store(batch_slots + k * packs, kRestPack);
    }
  }
  return true;
}

}  // namespace weft::detail
