// Copies between ranks by push, bit for bit. All-gather, all-to-all and broadcast, equal and ragged, are one algorithm
// with different shares (row_partition.hpp). Every rank pushes its rows for a peer into that peer's window, and the
// peer moves them to their final place.
//
// Messages that fit into a slot go as lines, which carry their own arrival. Larger messages flow in chunks
// (flow_copy.hpp). If peers reach the outputs, they are written to their final place (symmetric_copy.hpp). If one rank
// has most of all rows, they take a detour, in lines (relay_lines.hpp) or in chunks. In turn t a rank sends to the rank
// t places on and receives from the one t places back. In turn 0 it copies its own rows.
#pragma once

#include <cstdint>
#include <type_traits>

#include "numeric/rows.hpp"
#include "ops/all_reduce/all_reduce.hpp"
#include "ops/moves/copy_lines.hpp"
#include "ops/moves/flow_copy.hpp"
#include "ops/moves/relay_lines.hpp"
#include "ops/moves/row_partition.hpp"
#include "ops/moves/symmetric_copy.hpp"
#include "protocol/handshake.hpp"
#include "wire/line.hpp"

namespace weft::detail {

// `symmetric`: outputs lie in symmetric memory, and peers write messages that do not go as lines straight there.
template <class Partition, bool aligned16, std::uint32_t most_tensors, bool symmetric = false>
struct PushCopy {
  using Work = CopyWork<Partition, most_tensors, symmetric>;
  using Handshake = detail::Handshake<0>;
  static constexpr std::uint32_t kSize = 0;
  static constexpr int kPhases = 2;
  static constexpr std::uint32_t kMostPacks = 3;  // of a unit
  static constexpr bool kPrefetches = aligned16 && Partition::kFirstRowKnown;

  // Chunks in slots wait for their releases and for credits. While one warp group of a block waits, the others move
  // their chunks.
  static WEFT_FN std::uint32_t warp_groups(const Work& work) requires(!symmetric) { return work.partition.warp_groups; }

  // A thread's unit of the messages of a turn, in lines.
  struct Unit {
    std::uint32_t turn;
    std::uint32_t number;
  };

  // A thread's first unit, in bank 0, computed before the previous kernel has ended. Its rows need not be known for
  // that. Several tensors in one message are the exception: the unit is then assumed to belong to the first.
  struct ThreadPlan {
    HeaderAddress header;  // in the control block, which has no other places
    Unit unit;
    std::uint64_t first_pack;        // of its payload, in the tensor
    const void* source[kMostPacks];  // whole rows: the place of this rank's payload, as far as there is room
    Pack* to;
    Pack* from;
    std::uint64_t bank_packs;
  };
  template <Team T>
  static WEFT_FN ThreadPlan thread_plan(T& team, const Call& call, const Work& work) {
    ThreadPlan p{};
    if (Handshake::in_control(team, call, p.header)) return p;
    using Wire = Bundle<T::kAtomicBytes>;
    static_assert(Wire::kPayloadPacks <= kMostPacks);
    p.unit = unit_of(team, call, team.block_rank() - 1);
    p.first_pack = payload_pack<Wire>(p.unit.number, 0);
    p.to = slot<Wire>(call, receiver_in(call, p.unit.turn), call.rank, p.unit.number);
    p.from = slot<Wire>(call, call.rank, sender_in(call, p.unit.turn), p.unit.number);
    p.bank_packs = call.size * call.layout.two_shot_packs;
    team.settle(p.first_pack);
    team.settle(p.to);
    team.settle(p.from);
    team.settle(p.bank_packs);
    if constexpr (kPrefetches) {
      const CopyTensor& t = work.tensor[0];
      // Counted rows begin at the begin of their tensor.
      const Rows<aligned16> rows =
          outgoing<aligned16>(work.partition, t, work.partition.room(call), receiver_in(call, p.unit.turn));
      WEFT_UNROLL
      for (std::uint32_t k = 0; k < Wire::kPayloadPacks; ++k) {
        p.source[k] = rows.find(payload_pack<Wire>(p.unit.number, k));
        team.settle(p.source[k]);
      }
    }
    return p;
  }

  // The first unit's payload, as far as it can be known.
  struct Prefetched {
    typename Partition::Prefetched counts;
    Pack payload[kMostPacks];
  };
  template <Team T>
  static WEFT_FN Prefetched prefetch(T& team, const Session&, const Work& work, const ThreadPlan& p) {
    Prefetched prefetched{.counts = work.partition.prefetch(team), .payload = {}};
    if constexpr (kPrefetches) {
      WEFT_UNROLL
      for (std::uint32_t k = 0; k < kMostPacks; ++k) prefetched.payload[k] = Rows<aligned16>::load_found(p.source[k]);
    }
    return prefetched;
  }

  // Threads that send lines need not meet. Counts, and a chunk that a signal announces, are for the whole block.
  template <Team T>
  static WEFT_FN BeginScope begin_scope(const Work& work) {
    if constexpr (Partition::kKnown) {
      using Wire = Bundle<T::kAtomicBytes>;
      const std::uint64_t units = length<InBundles<Wire>>(work, work.partition.most_rows());
      if (!work.partition.detour && fits_lines<Wire>(work, units)) return BeginScope::thread;
    }
    return BeginScope::block;
  }

  template <int phase, Team T>
  static WEFT_FN bool run(T& team, const Session& s, const Work& work, const ThreadPlan& p,
                          const Prefetched& prefetched) {
    using Wire = Bundle<T::kAtomicBytes>;
    using Relays = RelayLines<Work, aligned16, Wire>;
    const auto& table = work.partition.table(team);
    const auto note = [&](std::uint64_t most, std::uint64_t all) {
      return team.block_rank() == 0 ? table.hash(s.size()) : trip_of<Wire>(s, work, table, most, all);
    };
    if constexpr (phase == 0) {
      if (!partition_fits(team, s, work.partition, prefetched.counts, note)) return false;
    }
    if (team.block_rank() == 0) return Handshake::template take_part<phase>(team, s, p.header, table.noted());
    const std::uint64_t trip = Partition::kKnown ? note(table.most_rows(), 0) : table.noted();
    const auto way = static_cast<Way>(trip >> 32);
    const auto units = static_cast<std::uint32_t>(trip);
    using Table = std::remove_cvref_t<decltype(table)>;
    if constexpr (phase == 0) {
      if (way == Way::chunks || way == Way::relayed_chunks) {
        if constexpr (symmetric) {
          if (team.block_rank() == 1) SymmetricCopy<Work, aligned16>::announce_ready(team, s, table);
        }
        return true;
      }
      if (way == Way::lines) send_lines<Wire>(team, s, work, p, prefetched, table, units);
      if constexpr (!ForReceivers<Table>) {
        if (way == Way::relayed_lines) Relays::send(team, s, work, table);
      }
      if constexpr (Partition::kPadded)
        clear_pads<aligned16>(team, s, work, table, {team.block_rank() - 1, team.blocks() - 1});
      return true;
    } else {
      if (way == Way::lines) return receive_lines<Wire>(team, s, work, p, table, units);
      if constexpr (!ForReceivers<Table>) {
        if (way == Way::relayed_lines) return Relays::receive(team, s, work, table);
      }
      using Chunks = std::conditional_t<symmetric, SymmetricCopy<Work, aligned16>, FlowCopy<Work, aligned16>>;
      return Chunks::run(team, s, work, table, !ForReceivers<Table> && way == Way::relayed_chunks);
    }
  }

 private:
  // The way of messages: the same on every rank.
  enum class Way : std::uint8_t { lines, chunks, relayed_lines, relayed_chunks };
  template <class Wire, class Table>
  static WEFT_FN Way way_of(const Session& s, const Work& work, const Table& table, std::uint64_t most,
                            std::uint64_t all, std::uint64_t units) {
    const auto detours = [&](bool chunks) {
      return work.partition.takes_detour(s, most, all, chunks,
                                         [&](std::uint64_t rows) { return length<InPacks>(work, rows); });
    };
    if (!ForReceivers<Table> && detours(false)) {
      if (RelayLines<Work, aligned16, Wire>::fits(s, work, table)) return Way::relayed_lines;
      if (detours(true)) return Way::relayed_chunks;
    }
    return fits_lines<Wire>(work, units) ? Way::lines : Way::chunks;
  }

  // The way, and behind it units of the longest message: few enough for 32 bits if they go as lines.
  template <class Wire, class Table>
  static WEFT_FN std::uint64_t trip_of(const Session& s, const Work& work, const Table& table, std::uint64_t most,
                                       std::uint64_t all) {
    const std::uint64_t units = length<InBundles<Wire>>(work, most);
    const Way way = way_of<Wire>(s, work, table, most, all, units);
    return static_cast<std::uint64_t>(way) << 32 | static_cast<std::uint32_t>(units);
  }

  template <class Wire>
  static WEFT_FN bool fits_lines(const Work& work, std::uint64_t units) {
    return units * Wire::kWirePacks <= work.line_packs;
  }
  static WEFT_FN std::uint32_t receiver_in(const Call& call, std::uint32_t turn) {
    return rank_after(call.rank, turn, call.size);
  }
  static WEFT_FN std::uint32_t sender_in(const Call& call, std::uint32_t turn) {
    return rank_before(call.rank, turn, call.size);
  }

  // ---------------------------------------------------------------------------------------------------------- lines

  // Item `item`: neighbouring blocks serve different peers, and one block serves different peers in turn.
  template <Team T>
  static WEFT_FN Unit unit_of(T& team, const Call& call, std::uint32_t item) {
    const std::uint32_t part = item / call.size;
    return {.turn = (item + part) % call.size, .number = part * team.size() + team.thread_rank()};
  }

  // The slot in bank 0.
  template <class Wire>
  static WEFT_FN Pack* slot(const Call& call, std::uint32_t owner, std::uint32_t sender, std::uint64_t unit) {
    return reinterpret_cast<Pack*>(region_of(call, owner) + call.layout.gather) + sender * call.layout.two_shot_packs +
           wire_pack<Wire>(unit, 0);
  }
  static WEFT_FN std::uint64_t bank(const Session& s, const ThreadPlan& p) { return s.epoch % kBanks * p.bank_packs; }

  // `units`: of the longest message.
  template <class Wire, Team T, class Table>
  static WEFT_FN void send_lines(T& team, const Session& s, const Work& work, const ThreadPlan& p,
                                 const Prefetched& prefetched, const Table& table, std::uint32_t units) {
    std::uint64_t rows = rows_between(table, s.rank(), receiver_in(*s.call, p.unit.turn));
    Unit unit = p.unit;
    Pack* to = p.to;
    Pack payload[Wire::kPayloadPacks];
    WEFT_UNROLL
    for (std::uint32_t k = 0; k < Wire::kPayloadPacks; ++k) payload[k] = prefetched.payload[k];
    bool loaded = kPrefetches && p.first_pack < length<InPacks>(work.tensor[0], rows);
    for (std::uint32_t item = team.block_rank() - 1; unit.number < units;) {
      const Home home = loaded ? Home{0, unit.number} : home_of<Wire>(work, rows, unit.number);
      if (home.exists()) {
        if (!loaded) {
          load_bundle<Wire, aligned16>(work, table, home, rows, receiver_in(*s.call, unit.turn), payload);
        }
        if (unit.turn != 0) {
          WirePacks<Wire> wire;
          encode_bundle<Wire>(payload, s.epoch, wire);
          put_bundle<Wire>(team, to + bank(s, p), wire);
        } else {
          store_bundle<Wire, aligned16>(work, table, home, rows, s.rank(), payload);
        }
      }
      loaded = false;
      item += team.blocks() - 1;
      unit = unit_of(team, *s.call, item);
      if constexpr (ForReceivers<Table>) rows = table.rows_for(receiver_in(*s.call, unit.turn));
      to = slot<Wire>(*s.call, receiver_in(*s.call, unit.turn), s.rank(), unit.number);
    }
  }

  template <class Wire, Team T, class Table>
  static WEFT_FN bool receive_lines(T& team, const Session& s, const Work& work, const ThreadPlan& p,
                                    const Table& table, std::uint32_t units) {
    Unit unit = p.unit;
    Pack* from = p.from;
    for (std::uint32_t item = team.block_rank() - 1; unit.number < units;) {
      if (unit.turn != 0 && !receive_unit<Wire>(team, s, work, table, unit, from + bank(s, p))) return false;
      item += team.blocks() - 1;
      unit = unit_of(team, *s.call, item);
      from = slot<Wire>(*s.call, s.rank(), sender_in(*s.call, unit.turn), unit.number);
    }
    return true;
  }
  template <class Wire, Team T, class Table>
  static WEFT_FN bool receive_unit(T& team, const Session& s, const Work& work, const Table& table, const Unit& unit,
                                   Pack* from) {
    const std::uint32_t sender = sender_in(*s.call, unit.turn);
    const std::uint64_t rows = rows_between(table, sender, s.rank());
    const Home home = home_of<Wire>(work, rows, unit.number);
    if (!home.exists()) return true;
    WirePacks<Wire> wire;
    if (!take_bundle<Wire>(team, s, from, sender, wire)) return false;
    Pack payload[Wire::kPayloadPacks];
    Wire::decode(wire, payload);
    store_bundle<Wire, aligned16>(work, table, home, rows, sender, payload);
    return true;
  }
};

}  // namespace weft::detail
