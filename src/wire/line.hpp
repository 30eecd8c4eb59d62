// Wire format "line": payload that must stay bit-exact. Every unit that arrives whole carries a flag that shows its
// arrival (NCCL's LL protocol).
//
// The flag is the epoch without its top bit, which never equals the resting word. Readers put the resting word back
// (base/pack.hpp). So a slot that no call has touched for 2^31 calls cannot be taken for new data; an epoch alone could
// not promise that.
#pragma once

#include <concepts>
#include <cstdint>

#include "base/function.hpp"
#include "base/pack.hpp"

namespace weft::detail {

// 4 bytes of payload in every 8: holds wherever 8-byte stores are atomic.
struct Line {
  static constexpr int kPayloadBytes = 8;

  static WEFT_FN std::uint32_t flag(std::uint32_t epoch) { return epoch & 0x7fffffffu; }

  // `payload` holds its 8 bytes in words 0 and 1.
  template <int /*atomic_bytes*/>
  static WEFT_FN Pack encode(Pack payload, std::uint32_t epoch) {
    return {{payload.word[0], flag(epoch), payload.word[1], flag(epoch)}};
  }

  template <int /*atomic_bytes*/>
  static WEFT_FN bool arrived(const Pack& pack, std::uint32_t epoch) {
    return pack.word[1] == flag(epoch) && pack.word[3] == flag(epoch);
  }

  static WEFT_FN Pack decode(const Pack& pack) { return {{pack.word[0], pack.word[2], 0, 0}}; }
};

// Copies carry whole packs of payload, as many as fill whole packs of the wire: a *bundle*. If packs are atomic, 12 of
// their 16 bytes are payload, and three packs travel in four. Otherwise one travels in two, as above. The packs of
// kTile bundles lie interleaved, so that neighbouring threads read and write neighbouring packs.
template <int atomic_bytes>
struct Bundle {
  static constexpr std::uint32_t kPayloadPacks = 1, kWirePacks = 2, kTile = 1;

  // Pack `k` on the wire of the bundle whose packs begin at `payload`.
  static WEFT_FN Pack encode(const Pack* payload, std::uint32_t k, std::uint32_t epoch) {
    return Line::encode<atomic_bytes>({{payload[0].word[2 * k], payload[0].word[2 * k + 1], 0, 0}}, epoch);
  }
  static WEFT_FN bool arrived(const Pack& wire, std::uint32_t epoch) {
    return Line::arrived<atomic_bytes>(wire, epoch);
  }
  static WEFT_FN void decode(const Pack (&wire)[kWirePacks], Pack (&payload)[kPayloadPacks]) {
    payload[0] = {{wire[0].word[0], wire[0].word[2], wire[1].word[0], wire[1].word[2]}};
  }
};

template <>
struct Bundle<16> {
  static constexpr std::uint32_t kPayloadPacks = 3, kWirePacks = 4, kTile = 32;

  static WEFT_FN Pack encode(const Pack* payload, std::uint32_t k, std::uint32_t epoch) {
    const auto word = [&](std::uint32_t i) { return payload[i / 4].word[i % 4]; };
    return {{word(3 * k), word(3 * k + 1), word(3 * k + 2), Line::flag(epoch)}};
  }
  static WEFT_FN bool arrived(const Pack& wire, std::uint32_t epoch) { return wire.word[3] == Line::flag(epoch); }
  static WEFT_FN void decode(const Pack (&wire)[kWirePacks], Pack (&payload)[kPayloadPacks]) {
    WEFT_UNROLL
    for (std::uint32_t i = 0; i < 12; ++i) payload[i / 4].word[i % 4] = wire[i / 3].word[i % 3];
  }
};

// bundles_for(): bundles, in full tiles, that carry `packs` packs of payload. payload_pack(): the place of a bundle's
// pack `k` in a message.
template <class Wire, std::unsigned_integral Number>
WEFT_FN constexpr Number bundles_for(Number packs) {
  constexpr std::uint32_t tile = Wire::kTile * Wire::kPayloadPacks;
  return (packs + tile - 1) / tile * Wire::kTile;
}
template <class Wire, std::unsigned_integral Number>
WEFT_FN constexpr Number payload_pack(Number bundle, std::uint32_t k) {
  return (bundle / Wire::kTile * Wire::kPayloadPacks + k) * Wire::kTile + bundle % Wire::kTile;
}
template <class Wire, std::unsigned_integral Number>
WEFT_FN constexpr Number wire_pack(Number bundle, std::uint32_t k) {
  return (bundle / Wire::kTile * Wire::kWirePacks + k) * Wire::kTile + bundle % Wire::kTile;
}

}  // namespace weft::detail
