// How the threads of a block move many packs: a few at a time, so that each has several loads under way.
#pragma once

#include <cstdint>

#include "base/function.hpp"
#include "base/pack.hpp"
#include "team/team.hpp"

namespace weft::detail {

// Calls `load(m, i, payload)` for this thread's packs i below count[m] of each of some messages, `at_once` of each, and
// then `store(m, i, payload)` for the same: loads wait for no store. The first ones do not wait for `ready()` either,
// which all threads call once, those without packs as well, before anything is stored; false, when it is.
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

// Where there is nothing to wait for.
WEFT_FN bool always() {
  return true;
}

}  // namespace weft::detail
