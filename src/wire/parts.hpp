// A pack of payload on the wire: one pack, or two of a wire format that carries eight bytes in each.
#pragma once

#include <cstdint>

#include "base/function.hpp"
#include "base/pack.hpp"

namespace weft::detail {

template <class Wire>
struct WireParts {
  static constexpr std::uint32_t kWirePacks = sizeof(Pack) / Wire::kPayloadBytes;

  // part(): pack `k` of the wire for a pack of payload, before it is encoded. put_part() is the inverse.
  static WEFT_FN Pack part(const Pack& unit, std::uint32_t k) {
    if constexpr (kWirePacks == 1) return unit;
    return {{unit.word[2 * k], unit.word[2 * k + 1], 0, 0}};
  }
  static WEFT_FN void put_part(Pack& unit, std::uint32_t k, const Pack& part) {
    if constexpr (kWirePacks == 1) {
      unit = part;
    } else {
      unit.word[2 * k] = part.word[0];
      unit.word[2 * k + 1] = part.word[1];
    }
  }
};

}  // namespace weft::detail
