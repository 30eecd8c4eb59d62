// Bundles of lines on their way (wire/line.hpp): copies put them into a slot, take them out, and store them.
#pragma once

#include <cstdint>

#include "ops/moves/copy_rows.hpp"
#include "protocol/session.hpp"
#include "wire/line.hpp"

namespace weft::detail {

template <class Wire>
using WirePacks = Pack[Wire::kWirePacks];

template <class Wire, Team T>
WEFT_FN void put_bundle(T& team, Pack* to, const WirePacks<Wire>& wire) {
  WEFT_UNROLL
  for (std::uint32_t k = 0; k < Wire::kWirePacks; ++k) team.store(to + k * Wire::kTile, wire[k]);
}
template <class Wire>
WEFT_FN void encode_bundle(const Pack* payload, std::uint32_t epoch, WirePacks<Wire>& wire) {
  WEFT_UNROLL
  for (std::uint32_t k = 0; k < Wire::kWirePacks; ++k) wire[k] = Wire::encode(payload, k, epoch);
}

// Waits for the bundle that `sender` puts there, and puts the slot to rest. False when the call has failed.
template <class Wire, Team T>
WEFT_FN bool take_bundle(T& team, const Session& s, Pack* from, std::uint32_t sender, WirePacks<Wire>& wire) {
  const auto arrived = [&] {
    WEFT_UNROLL
    for (std::uint32_t k = 0; k < Wire::kWirePacks; ++k) wire[k] = team.load(from + k * Wire::kTile);
    bool all = true;
    WEFT_UNROLL
    for (std::uint32_t k = 0; k < Wire::kWirePacks; ++k) all &= Wire::arrived(wire[k], s.epoch);
    return all;
  };
  if (!wait(team, s, {.phase = 1}, arrived, [&] { return sender; })) return false;
  WEFT_UNROLL
  for (std::uint32_t k = 0; k < Wire::kWirePacks; ++k) team.store(from + k * Wire::kTile, kRestPack);
  return true;
}

// Loads the payload for `receiver`.
template <class Wire, bool aligned16, class Work, class Table>
WEFT_FN void load_bundle(const Work& work, const Table& table, const Home& home, std::uint64_t rows,
                         std::uint32_t receiver, Pack* payload) {
  const Rows<aligned16> from = outgoing<aligned16>(table, work.tensor[home.tensor], rows, receiver);
  WEFT_UNROLL
  for (std::uint32_t k = 0; k < Wire::kPayloadPacks; ++k) payload[k] = from.load(payload_pack<Wire>(home.number, k));
}
// Stores rows of `owner`.
template <class Wire, bool aligned16, class Work, class Table>
WEFT_FN void store_bundle(const Work& work, const Table& table, const Home& home, std::uint64_t rows,
                          std::uint32_t owner, const Pack* payload) {
  const auto to = incoming<aligned16>(table, work.tensor[home.tensor], rows, owner);
  WEFT_UNROLL
  for (std::uint32_t k = 0; k < Wire::kPayloadPacks; ++k) to.store(payload_pack<Wire>(home.number, k), payload[k]);
}

}  // namespace weft::detail
