// Wire format "signal": unchanged packs, and for each chunk of them one word that signals their arrival.
//
// The writer puts the packs in place with ordinary stores and then releases the word. The reader acquires the word and
// then reads the packs with ordinary loads. No value of the payload is special, and nothing is ever cleaned: words only
// grow. One release per chunk costs a round trip, so this is the format for large messages.
#pragma once

#include <cstdint>

#include "base/function.hpp"

namespace weft::detail {

// The payload of a pack, for reductions.
struct Plain {
  static constexpr int kPayloadBytes = 16;
};

// Newer for every later chunk of a call and for the next call. No rank is further ahead. A word that looks so is old:
// no call has touched it for so long that epochs have wrapped.
WEFT_FN constexpr std::uint64_t signal_word(std::uint32_t epoch, std::uint32_t chunk) {
  return static_cast<std::uint64_t>(epoch) << 32 | chunk;
}
WEFT_FN constexpr bool signal_reached(std::uint64_t got, std::uint64_t want) {
  return got - want < std::uint64_t{2} << 32;
}

}  // namespace weft::detail
