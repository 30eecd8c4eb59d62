// A gather's detour (flow.hpp, Route) in lines: tiles of bundles go to relays, which pass on what comes as it comes, so
// that the second hop begins a flight behind the first. The areas and banks of the two-shot all-reduce: to relays in
// `scatter`, from them in `gather`.
//
// Tile t of an owner's message goes by the relay that is 1 + t mod (N − 1) ranks on, as its tile t / (N − 1); behind
// one another, the owners' tiles fill the relay's slot.
#pragma once

#include <cstdint>

#include "algorithms/copy_lines.hpp"

namespace weft::detail {

template <class Shares, bool whole, std::uint32_t most_tensors, class Wire>
struct RelayLines {
  using Work = CopyWork<Shares, most_tensors>;

  template <class Table>
  static WEFT_FN bool fits(const Session& s, const Work& work, const Table& table) {
    return first_tile(s, work, table, s.size()) * Wire::kTile * Wire::kWirePacks <= work.line_packs;
  }

  template <Team T, class Table>
  static WEFT_FN void send(T& team, const Session& s, const Work& work, const Table& table) {
    const std::uint32_t self = s.rank();
    const std::uint64_t rows = table.rows_of(self), units = length<InBundles<Wire>>(work, rows);
    const Mine mine = mine_of(team);
    for (std::uint64_t number = mine.first; number < units; number += mine.step) {
      const Home home = home_of<Wire>(work, rows, number);
      if (home.tensor == nullptr) continue;
      const Tile tile = tile_of(s, number);
      const std::uint32_t relay = rank_after(self, tile.turn, s.size());
      Pack payload[Wire::kPayloadPacks];
      load_bundle<Wire, whole>(work.shares, home, rows, relay, payload);
      WirePacks<Wire> wire;
      encode_bundle<Wire>(payload, s.epoch, wire);
      put_bundle<Wire>(team, slot(s, relay, s.layout().scatter, self, tile.number, number), wire);
      store_bundle<Wire, whole>(table, home, rows, self, payload);
    }
  }

  template <Team T, class Table>
  static WEFT_FN bool receive(T& team, const Session& s, const Work& work, const Table& table) {
    const std::uint32_t self = s.rank();
    for (std::uint32_t turn = 1; turn < s.size(); ++turn) {
      if (!pass_on(team, s, work, table, rank_before(self, turn, s.size()), turn)) return false;
    }
    const Mine mine = mine_of(team);
    for (std::uint32_t turn = 1; turn < s.size(); ++turn) {
      const std::uint32_t owner = rank_before(self, turn, s.size());
      const std::uint64_t rows = table.rows_of(owner), units = length<InBundles<Wire>>(work, rows);
      const std::uint64_t before = first_tile(s, work, table, owner);
      for (std::uint64_t number = mine.first; number < units; number += mine.step) {
        const Home home = home_of<Wire>(work, rows, number);
        const Tile tile = tile_of(s, number);
        if (home.tensor == nullptr || tile.turn == turn) continue;  // nothing, or passed on by this rank itself
        const std::uint32_t relay = rank_after(owner, tile.turn, s.size());
        WirePacks<Wire> wire;
        Pack* const from = slot(s, self, s.layout().gather, relay, before + tile.number, number);
        if (!take_bundle<Wire>(team, s, from, relay, wire)) return false;
        store<Table>(table, home, rows, owner, wire);
      }
    }
    return true;
  }

 private:
  struct Mine {
    std::uint64_t first, step;
  };
  template <Team T>
  static WEFT_FN Mine mine_of(T& team) {
    return {static_cast<std::uint64_t>(team.block_rank() - 1) * team.size() + team.thread_rank(),
            static_cast<std::uint64_t>(team.blocks() - 1) * team.size()};
  }

  struct Tile {
    std::uint32_t turn;    // from the owner to the relay
    std::uint64_t number;  // of those that this relay has of the owner
  };
  static WEFT_FN std::uint32_t relays(const Session& s) { return s.size() - 1; }
  static WEFT_FN Tile tile_of(const Session& s, std::uint64_t unit) {
    const auto tile = static_cast<std::uint32_t>(unit / Wire::kTile);
    return {1 + tile % relays(s), tile / relays(s)};
  }
  // Of `owner`, in the slots of all relays alike.
  template <class Table>
  static WEFT_FN std::uint64_t first_tile(const Session& s, const Work& work, const Table& table, std::uint32_t owner) {
    std::uint64_t tiles = 0;
    for (std::uint32_t before = 0; before < owner; ++before) {
      const std::uint64_t units = length<InBundles<Wire>>(work, table.rows_of(before));
      tiles += (units / Wire::kTile + relays(s) - 1) / relays(s);
    }
    return tiles;
  }
  static WEFT_FN Pack* slot(const Session& s, std::uint32_t at, std::uint64_t area, std::uint32_t sender,
                            std::uint64_t tile, std::uint64_t unit) {
    auto* const slots = reinterpret_cast<Pack*>(region_of(*s.call, at) + area);
    const std::uint64_t bank = s.epoch % kBanks * s.size();
    return slots + (bank + sender) * s.layout().two_shot_packs +
           wire_pack<Wire>(tile * Wire::kTile + unit % Wire::kTile, 0);
  }

  template <class Table>
  static WEFT_FN void store(const Table& table, const Home& home, std::uint64_t rows, std::uint32_t owner,
                            const WirePacks<Wire>& wire) {
    Pack payload[Wire::kPayloadPacks];
    Wire::decode(wire, payload);
    store_bundle<Wire, whole>(table, home, rows, owner, payload);
  }

  // The tiles of `owner` of which this rank, `turn` ranks on, is the relay.
  template <Team T, class Table>
  static WEFT_FN bool pass_on(T& team, const Session& s, const Work& work, const Table& table, std::uint32_t owner,
                              std::uint32_t turn) {
    const std::uint32_t self = s.rank();
    const std::uint64_t rows = table.rows_of(owner), units = length<InBundles<Wire>>(work, rows);
    const std::uint64_t before = first_tile(s, work, table, owner);
    const Mine mine = mine_of(team);
    for (std::uint64_t i = mine.first;; i += mine.step) {
      const std::uint64_t tile = i / Wire::kTile;  // of this relay's
      const std::uint64_t number = (turn - 1 + tile * relays(s)) * Wire::kTile + i % Wire::kTile;
      if (number >= units) return true;
      const Home home = home_of<Wire>(work, rows, number);
      if (home.tensor == nullptr) continue;
      WirePacks<Wire> wire;
      if (!take_bundle<Wire>(team, s, slot(s, self, s.layout().scatter, owner, tile, number), owner, wire))
        return false;
      for (std::uint32_t next = 1; next < s.size(); ++next) {
        const std::uint32_t peer = rank_after(self, next, s.size());
        if (peer == owner) continue;
        put_bundle<Wire>(team, slot(s, peer, s.layout().gather, self, before + tile, number), wire);
      }
      store<Table>(table, home, rows, owner, wire);
    }
  }
};

}  // namespace weft::detail
