// A gather's detour (flow.hpp, Route) in lines. Tiles of bundles go to relays, which pass on each bundle as it comes.
// So the second hop begins one flight after the first. It uses the areas and banks of the two-shot all-reduce: to
// relays in `scatter`, from them in `gather`.
//
// Tile t of an owner's message goes by the relay that is 1 + t mod (N − 1) ranks on, as its tile t / (N − 1). The
// owners' tiles fill the relay's slot one behind the other.
#pragma once

#include <cstdint>

#include "ops/moves/copy_lines.hpp"

namespace weft::detail {

template <class Work, bool aligned16, class Wire>
struct RelayLines {
  template <class Table>
  static WEFT_FN bool fits(const Session& s, const Work& work, const Table& table) {
    std::uint64_t tiles = 0;  // of a relay's slot
    for (std::uint32_t owner = 0; owner < s.size(); ++owner) {
      const std::uint64_t all = length<InBundles<Wire>>(work, table.rows_of(owner)) / Wire::kTile;
      tiles += (all + relays(s) - 1) / relays(s);
    }
    return tiles * Wire::kTile * Wire::kWirePacks <= work.line_packs;
  }

  template <Team T, class Table>
  static WEFT_FN void send(T& team, const Session& s, const Work& work, const Table& table) {
    const std::uint32_t self = s.rank(), units = tiles_of(work, table, self) * Wire::kTile;
    const std::uint64_t rows = table.rows_of(self);
    for (std::uint32_t number = first_of(team); number < units; number += step_of(team)) {
      const Home home = home_of<Wire>(work, rows, number);
      if (!home.exists()) continue;
      const std::uint32_t tile = number / Wire::kTile, relay = relay_of(s, self, tile);
      Pack payload[Wire::kPayloadPacks];
      load_bundle<Wire, aligned16>(work, table, home, rows, relay, payload);
      WirePacks<Wire> wire;
      encode_bundle<Wire>(payload, s.epoch, wire);
      put_bundle<Wire>(team, slot(s, relay, s.layout().scatter, self, tile / relays(s), number), wire);
      store_bundle<Wire, aligned16>(work, table, home, rows, self, payload);
    }
  }

  template <Team T, class Table>
  static WEFT_FN bool receive(T& team, const Session& s, const Work& work, const Table& table) {
    return pass_on(team, s, work, table) && take(team, s, work, table);
  }

 private:
  template <Team T>
  static WEFT_FN std::uint32_t first_of(T& team) {
    return (team.block_rank() - 1) * team.size() + team.thread_rank();
  }
  template <Team T>
  static WEFT_FN std::uint32_t step_of(T& team) {
    return (team.blocks() - 1) * team.size();
  }

  // Messages that fit into a slot have few enough tiles for 32 bits.
  template <class Table>
  static WEFT_FN std::uint32_t tiles_of(const Work& work, const Table& table, std::uint32_t owner) {
    return static_cast<std::uint32_t>(length<InBundles<Wire>>(work, table.rows_of(owner)) / Wire::kTile);
  }
  static WEFT_FN std::uint32_t relays(const Session& s) { return s.size() - 1; }
  static WEFT_FN std::uint32_t relay_of(const Session& s, std::uint32_t owner, std::uint32_t tile) {
    return rank_after(owner, 1 + tile % relays(s), s.size());
  }
  static WEFT_FN std::uint32_t most_of_a_relay(const Session& s, std::uint32_t tiles) {
    return (tiles + relays(s) - 1) / relays(s);
  }
  // The tiles of one owner that go by the relay `turn` ranks on.
  static WEFT_FN std::uint32_t of_relay(const Session& s, std::uint32_t tiles, std::uint32_t turn) {
    return turn <= tiles ? most_of_a_relay(s, tiles - (turn - 1)) : 0;
  }
  static WEFT_FN Pack* slot(const Session& s, std::uint32_t at, std::uint64_t area, std::uint32_t sender,
                            std::uint32_t tile, std::uint32_t unit) {
    auto* const slots = reinterpret_cast<Pack*>(region_of(*s.call, at) + area);
    const std::uint64_t bank = s.epoch % kBanks * s.size();
    return slots + (bank + sender) * s.layout().two_shot_packs +
           wire_pack<Wire>(tile * Wire::kTile + unit % Wire::kTile, 0);
  }

  // Unit `unit` of the units that peers have for this rank, counted through all peers. Neighbouring threads serve
  // different owners if each owner has little.
  struct Item {
    std::uint32_t owner;   // none: s.size()
    std::uint32_t unit;    // of the owner's
    std::uint32_t before;  // tiles of a relay's slot in front of it
  };
  template <class Table, class Count>
  static WEFT_FN Item find(const Session& s, const Work& work, const Table& table, std::uint32_t unit, Count count) {
    Item item{.owner = 0, .unit = unit, .before = 0};
    for (; item.owner < s.size(); ++item.owner) {
      const std::uint32_t tiles = tiles_of(work, table, item.owner);
      const std::uint32_t units = item.owner != s.rank() ? count(item.owner, tiles) * Wire::kTile : 0;
      if (item.unit < units) break;
      item.unit -= units;
      item.before += most_of_a_relay(s, tiles);
    }
    return item;
  }

  template <class Table>
  static WEFT_FN void store(const Work& work, const Table& table, const Home& home, std::uint32_t owner,
                            const WirePacks<Wire>& wire) {
    Pack payload[Wire::kPayloadPacks];
    Wire::decode(wire, payload);
    store_bundle<Wire, aligned16>(work, table, home, table.rows_of(owner), owner, payload);
  }

  // Passes on the tiles that this rank relays.
  template <Team T, class Table>
  static WEFT_FN bool pass_on(T& team, const Session& s, const Work& work, const Table& table) {
    const std::uint32_t self = s.rank();
    const auto turn_of = [&](std::uint32_t owner) { return rank_before(self, owner, s.size()); };
    for (std::uint32_t i = first_of(team);; i += step_of(team)) {
      const Item item = find(s, work, table, i, [&](std::uint32_t owner, std::uint32_t tiles) {
        return of_relay(s, tiles, turn_of(owner));
      });
      if (item.owner == s.size()) return true;
      const std::uint32_t tile = item.unit / Wire::kTile;  // of this relay's
      const std::uint32_t number = (turn_of(item.owner) - 1 + tile * relays(s)) * Wire::kTile + item.unit % Wire::kTile;
      const Home home = home_of<Wire>(work, table.rows_of(item.owner), number);
      if (!home.exists()) continue;
      WirePacks<Wire> wire;
      Pack* const from = slot(s, self, s.layout().scatter, item.owner, tile, number);
      if (!take_bundle<Wire>(team, s, from, item.owner, wire)) return false;
      for (std::uint32_t turn = 1; turn < s.size(); ++turn) {
        const std::uint32_t peer = rank_after(self, turn, s.size());
        if (peer == item.owner) continue;
        put_bundle<Wire>(team, slot(s, peer, s.layout().gather, self, item.before + tile, number), wire);
      }
      store(work, table, home, item.owner, wire);
    }
  }

  // Takes the units that others pass on. The last threads begin, because the first ones pass on themselves.
  template <Team T, class Table>
  static WEFT_FN bool take(T& team, const Session& s, const Work& work, const Table& table) {
    const std::uint32_t self = s.rank();
    for (std::uint32_t i = step_of(team) - 1 - first_of(team);; i += step_of(team)) {
      const Item item = find(s, work, table, i, [](std::uint32_t, std::uint32_t tiles) { return tiles; });
      if (item.owner == s.size()) return true;
      const Home home = home_of<Wire>(work, table.rows_of(item.owner), item.unit);
      const std::uint32_t tile = item.unit / Wire::kTile, relay = relay_of(s, item.owner, tile);
      if (!home.exists() || relay == self) continue;
      WirePacks<Wire> wire;
      Pack* const from = slot(s, self, s.layout().gather, relay, item.before + tile / relays(s), item.unit);
      if (!take_bundle<Wire>(team, s, from, relay, wire)) return false;
      store(work, table, home, item.owner, wire);
    }
  }
};

}  // namespace weft::detail
