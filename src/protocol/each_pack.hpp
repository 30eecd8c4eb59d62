// The threads of a block move many packs: a few at a time, so that each thread has several loads under way.
#pragma once

#include <cstdint>

#include "base/function.hpp"
#include "base/pack.hpp"
#include "team/team.hpp"

namespace weft::detail {

// Packs of one message that a thread of a chunk's block has under way.
inline constexpr std::uint32_t kPacksAtOnce = 4;

// For this thread's packs i below count[m] of each message, `at_once` of each: calls `load(m, i, payload)`, then
// `store(m, i, payload)`. Loads wait for no store, and the first loads do not wait for `ready()`. All threads call it
// once, even without packs, before any store; false if it returns false.
template <std::uint32_t at_once, std::uint32_t messages, Team T, class Load, class Ready, class Store>
WEFT_FN bool each_pack(T& team, const std::uint32_t (&count)[messages], Load load, Ready ready, Store store) {
  std::uint32_t most = 0;
  WEFT_UNROLL
  for (std::uint32_t m = 0; m < messages; ++m) {
    if (count[m] > most) most = count[m];
  }
  bool first = true;
  for (std::uint32_t i = team.thread_rank(); first || i < most; i += at_once * team.size()) {
    Pack payload[at_once][messages] = {};
    const auto each = [&](auto serve) {
      WEFT_UNROLL
      for (std::uint32_t k = 0; k < at_once; ++k) {
        WEFT_UNROLL
        for (std::uint32_t m = 0; m < messages; ++m) {
          const std::uint32_t at = i + k * team.size();
          if (at < count[m]) serve(m, at, payload[k][m]);
        }
      }
    };
    each(load);
    if (first && !ready()) return false;
    first = false;
    each(store);
  }
  return true;
}

// A `ready()` for callers that wait for nothing.
WEFT_FN bool always() {
  return true;
}

}  // namespace weft::detail
