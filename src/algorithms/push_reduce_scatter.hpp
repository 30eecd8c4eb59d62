// Reduce-scatter by push: every rank sends each peer its part of the peer's shard, and each reduces its own. The first
// hop of the two-shot all-reduce, with the same order of sums and so the same bits.
//
// Shards that fit into a slot carry their own arrival; larger ones flow in chunks (flow.hpp).
#pragma once

#include <cstdint>

#include "algorithms/all_reduce.hpp"
#include "algorithms/flow.hpp"
#include "algorithms/shares.hpp"
#include "core/rows.hpp"

namespace weft::detail {

template <class Shares>
struct ReduceScatterWork {
  Shares shares;
  std::uint64_t slot_packs;  // of the wire: longer shards flow
  const void* input;
  void* output;
  std::uint64_t row_bytes, input_stride, output_stride;
};

template <class Shares, DataType type, ReduceOp op, std::uint32_t known_size, bool whole>
struct PushReduceScatter : AllReduceInstance<Reduction<type, op>, known_size, whole> {
  using Instance = AllReduceInstance<Reduction<type, op>, known_size, whole>;
  using Instance::kBatch;
  using typename Instance::R;
  using typename Instance::Slots;
  using typename Instance::Wire;
  using Sum = Reduction<type, op, Plain>;  // of packs without a wire format
  using Work = ReduceScatterWork<Shares>;
  using Handshake = detail::Handshake<known_size>;
  static constexpr int kPhases = 2;
  // A unit is a pack of payload; it takes one or two packs of the wire.
  static constexpr std::uint32_t kWirePacks = sizeof(Pack) / Wire::kPayloadBytes;

  // In lean instances a thread knows beforehand where its first packs lie and where they go, unless counts decide where
  // they lie: then it has time for the rest while it waits for these (0.5 us slower otherwise: two H200, 28 KB).
  static constexpr bool kLoadsEarly = Instance::kLean && Shares::kKnown;

  struct Places {
    HeaderPlace header;          // in the control block, which has nothing else
    Slots to;                    // in the turns from 1 on, in bank 0
    const void* source[kBatch];  // null: no pack
  };
  template <Team T>
  static WEFT_FN Places places(T& team, const Call& call, const Work& work) {
    Places p{};
    if (team.block_rank() == 0) {
      p.header = Handshake::place(team, call);
      return p;
    }
    if constexpr (kLoadsEarly) {
      const std::uint64_t first = share_of(team).first;
      Instance::find_slots(call, 1, call.layout.scatter, call.layout.two_shot_packs, first, p.to);
      WEFT_UNROLL
      for (std::uint32_t k = 0; k < kBatch; ++k) {
        team.settle(p.to[k]);
        if (1 + k >= known_size) continue;
        p.source[k] = part_of(work, work.shares, Instance::rank_in_turn(call, 1 + k)).find(first);
        team.settle(p.source[k]);
      }
    }
    return p;
  }

  struct Early {
    typename Shares::Early counts;
    Pack payload[kBatch];
  };
  template <Team T>
  static WEFT_FN Early early(T& team, const Session&, const Work& work, const Places& p) {
    Early early{.counts = work.shares.early(team), .payload = {}};
    if constexpr (kLoadsEarly) {
      WEFT_UNROLL
      for (std::uint32_t k = 0; k < kBatch; ++k) early.payload[k] = Rows<whole>::load_found(p.source[k]);
    }
    return early;
  }

  // As in push_copy.hpp.
  template <Team T>
  static WEFT_FN Together together(const Work& work) {
    if constexpr (Shares::kKnown) {
      if (!work.shares.detour && fits_slots(work, units(work, work.shares.most_rows()))) return Together::thread;
    }
    return Together::block;
  }

  template <int phase, Team T>
  static WEFT_FN bool run(T& team, const Session& s, const Work& work, const Places& p, const Early& early) {
    const auto& table = work.shares.table(team);
    const auto note = [&](std::uint64_t most, std::uint64_t all) -> std::uint64_t {
      if (team.block_rank() == 0) return table.hash(s.size());
      return work.shares.takes_detour(s, most, all, true, [&](std::uint64_t rows) { return units(work, rows); });
    };
    if constexpr (phase == 0) {
      if (!shares_fit(team, s, work.shares, early.counts, note)) return false;
    }
    if (team.block_rank() == 0) return Handshake::template take_part<phase>(team, s, p.header, table.noted());
    const std::uint64_t most = units(work, table.most_rows());
    const bool detour = (Shares::kKnown ? note(most, 0) : table.noted()) != 0;
    const bool one_go = !detour && fits_slots(work, most);
    if constexpr (phase == 0) {
      if (one_go) send(team, s, work, p, early, table, most);
      if constexpr (Shares::kPadded) clear_pads(team, s, work, table);
      return true;
    } else {
      return one_go ? reduce(team, s, work, table) : flow(team, s, work, table, Route{&s, detour}, most);
    }
  }

 private:
  static WEFT_FN bool fits_slots(const Work& work, std::uint64_t units) {
    return units * kWirePacks <= work.slot_packs;
  }
  static WEFT_FN std::uint64_t units(const Work& work, std::uint64_t rows) {
    return (rows * work.row_bytes + sizeof(Pack) - 1) / sizeof(Pack);
  }
  // What this rank has for `owner`, and what it makes.
  template <class Table>
  static WEFT_FN Rows<whole> part_of(const Work& work, const Table& table, std::uint32_t owner) {
    const auto* const from = static_cast<const std::byte*>(work.input);
    return {from + table.offset_of(owner) * work.input_stride, table.rows_of(owner), work.row_bytes, work.input_stride};
  }
  template <class Table>
  static WEFT_FN Rows<whole> result(const Session& s, const Work& work, const Table& table) {
    return {work.output, table.rows_of(s.rank()), work.row_bytes, work.output_stride};
  }

  template <Team T, class Table>
  static WEFT_FN void clear_pads(T& team, const Session& s, const Work& work, const Table& table) {
    const auto [first, step] = share_of(team);
    const std::uint64_t rows = table.rows_of(s.rank());
    const Rows<whole> pad(static_cast<std::byte*>(work.output) + rows * work.output_stride,
                          table.slot_rows_of(s.rank()) - rows, work.row_bytes, work.output_stride);
    for (std::uint64_t i = first; i < pad.packs(); i += step) pad.store(i, Pack{});
  }

  // Pack `k` of the wire for a unit of payload, before it is encoded; and back.
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

  static WEFT_FN Pack* slot(const Session& s, std::uint32_t owner, std::uint32_t sender) {
    const std::uint64_t packs = s.layout().two_shot_packs;
    return Instance::slot(*s.call, owner, s.layout().scatter, packs, sender) + bank(s);
  }
  static WEFT_FN std::uint64_t bank(const Session& s) {
    return s.epoch % kBanks * Instance::bank_packs(*s.call, s.layout().two_shot_packs);
  }

  template <Team T, class Table>
  static WEFT_FN void send(T& team, const Session& s, const Work& work, const Places& p, const Early& early,
                           const Table& table, std::uint64_t most) {
    const Share share = share_of(team);
    for (std::uint32_t turn = 1; turn < Instance::size(*s.call); turn += kBatch) {
      Rows<whole> from[kBatch];
      Slots to = {};  // this thread's first packs
      each_of_batch(s, turn, [&](std::uint32_t k, std::uint32_t owner) {
        from[k] = part_of(work, table, owner);
        to[k] = kLoadsEarly ? p.to[k] + bank(s) : slot(s, owner, s.rank()) + share.first * kWirePacks;
      });
      for (std::uint64_t i = share.first; i < most; i += share.step) {
        Pack payload[kBatch];
        WEFT_UNROLL
        for (std::uint32_t k = 0; k < kBatch; ++k)
          payload[k] = kLoadsEarly && i == share.first ? early.payload[k] : from[k].load(i);
        WEFT_UNROLL
        for (std::uint32_t k = 0; k < kBatch; ++k) {
          if (i >= from[k].packs()) continue;
          WEFT_UNROLL
          for (std::uint32_t w = 0; w < kWirePacks; ++w) {
            team.store(to[k] + (i - share.first) * kWirePacks + w,
                       Wire::template encode<T::kAtomicBytes>(part(payload[k], w), s.epoch));
          }
        }
      }
    }
  }
  // Calls `serve(k, peer)` for the peers of the turns turn … turn + kBatch − 1.
  template <class Serve>
  static WEFT_FN void each_of_batch(const Session& s, std::uint32_t turn, Serve serve) {
    WEFT_UNROLL
    for (std::uint32_t k = 0; k < kBatch; ++k) {
      if (turn + k >= Instance::size(*s.call)) break;
      serve(k, Instance::rank_in_turn(*s.call, turn + k));
    }
  }

  template <Team T, class Table>
  static WEFT_FN bool reduce(T& team, const Session& s, const Work& work, const Table& table) {
    const auto [first, step] = share_of(team);
    const Rows<whole> input = part_of(work, table, s.rank()), output = result(s, work, table);
    Pack* const slots = slot(s, s.rank(), 0);
    for (std::uint64_t i = first; i < output.packs(); i += step) {
      const Pack own = input.load(i);
      Pack unit{};
      WEFT_UNROLL
      for (std::uint32_t w = 0; w < kWirePacks; ++w) {
        typename R::Accumulator sum{};
        if (!Instance::template receive_and_reduce<false>(team, s, 1, slots + i * kWirePacks + w,
                                                          s.layout().two_shot_packs, part(own, w), sum)) {
          return false;
        }
        put_part(unit, w, R::finish(sum));
      }
      output.store(i, unit);
    }
    return true;
  }

  // --------------------------------------------------------------------------------------------------------- chunks

  template <Team T, class Table>
  static WEFT_FN bool flow(T& team, const Session& s, const Work& work, const Table& table, const Route& route,
                           std::uint64_t most) {
    const Flow::Role role = route.role_of(team);
    const std::uint64_t chunks = route.wide().chunks_of(most);
    for (std::uint64_t chunk = role.block; chunk < chunks + role.blocks; chunk += role.blocks) {
      if (role.sends && chunk < chunks && !send_chunk(team, s, work, table, route, chunk)) return false;
      if (!role.receives || chunk < role.block + role.blocks) continue;
      if (!reduce_chunk(team, s, work, table, route, chunk - role.blocks)) return false;
      if (!take_chunk(team, s, work, table, route, chunk - role.blocks)) return false;
    }
    return drain(team, s, work, table, route, chunks, role);
  }

  template <class Table>
  static WEFT_FN bool has(const Work& work, const Table& table, const Flow& flow, std::uint32_t owner,
                          std::uint64_t chunk) {
    return chunk < flow.chunks_of(units(work, table.rows_of(owner)));
  }

  // A chunk to each peer: of what it reduces.
  template <Team T, class Table>
  static WEFT_FN bool send_chunk(T& team, const Session& s, const Work& work, const Table& table, const Route& route,
                                 std::uint64_t chunk) {
    const Flow flow = route.wide();
    const auto takes = [&](std::uint32_t peer) { return has(work, table, flow, route.owner_at(peer, chunk), chunk); };
    if (!Flow::each_peer(team, s,
                         [&](std::uint32_t peer) { return !takes(peer) || flow.await_slot(team, peer, chunk); })) {
      return false;
    }
    const std::uint64_t begin = chunk * flow.chunk_packs();
    for (std::uint32_t turn = 1; turn < Instance::size(*s.call); turn += kBatch) {
      Rows<whole> from[kBatch];
      Pack* to[kBatch] = {};
      each_of_batch(s, turn, [&](std::uint32_t k, std::uint32_t peer) {
        from[k] = part_of(work, table, route.owner_at(peer, chunk));
        to[k] = flow.slot(peer, chunk, s.rank());
      });
      for (std::uint64_t i = team.thread_rank(); i < flow.chunk_packs(); i += team.size()) {
        Pack payload[kBatch];
        WEFT_UNROLL
        for (std::uint32_t k = 0; k < kBatch; ++k) payload[k] = from[k].load(begin + i);
        WEFT_UNROLL
        for (std::uint32_t k = 0; k < kBatch; ++k) {
          if (begin + i < from[k].packs()) team.put(to[k] + i, payload[k]);
        }
      }
    }
    team.sync();
    Flow::tell_peers(team, s, [&](std::uint32_t peer) {
      if (takes(peer)) flow.announce(team, peer, chunk);
    });
    return true;
  }

  // The chunk of which this rank is the relay: its own, or one whose sums it passes on.
  template <Team T, class Table>
  static WEFT_FN bool reduce_chunk(T& team, const Session& s, const Work& work, const Table& table, const Route& route,
                                   std::uint64_t chunk) {
    const Flow flow = route.wide(), to_owner = route.narrow();
    const std::uint32_t owner = route.owner_at(s.rank(), chunk);
    if (!has(work, table, flow, owner, chunk)) return true;
    if (!Flow::each_peer(team, s, [&](std::uint32_t peer) {
          return flow.await_chunk(team, peer, chunk) && (peer != owner || to_owner.await_slot(team, owner, chunk));
        })) {
      return false;
    }
    const bool own = owner == s.rank();
    const Rows<whole> input = part_of(work, table, owner), output = result(s, work, table);
    Pack* const passed = own ? nullptr : to_owner.slot(owner, chunk, s.rank());
    const std::uint64_t begin = chunk * flow.chunk_packs();
    const Pack* const slots = flow.slot(s.rank(), chunk, 0);
    for (std::uint64_t i = team.thread_rank(); i < flow.chunk_packs() && begin + i < input.packs(); i += team.size()) {
      const Pack mine = input.load(begin + i);
      typename Sum::Accumulator sum{};
      for (std::uint32_t first = 0; first < Instance::size(*s.call); first += kBatch) {
        Pack received[kBatch] = {};
        WEFT_UNROLL
        for (std::uint32_t k = 0; k < kBatch; ++k) {
          if (!Instance::exists(s, first + k)) break;
          received[k] = first + k == s.rank() ? mine : team.get(slots + (first + k) * flow.chunk_packs() + i);
        }
        WEFT_UNROLL
        for (std::uint32_t k = 0; k < kBatch; ++k) {
          if (!Instance::exists(s, first + k)) break;
          if (first + k == 0) {
            Sum::begin(sum, received[k]);
          } else {
            Sum::add(sum, received[k]);
          }
        }
      }
      if (own) {
        output.store(begin + i, Sum::finish(sum));
      } else {
        team.put(passed + i, Sum::finish(sum));
      }
    }
    team.sync();
    Flow::tell_peers(team, s, [&](std::uint32_t peer) {
      flow.give_credit(team, peer, chunk);
      if (peer == owner) to_owner.announce(team, owner, chunk);
    });
    return true;
  }

  // This rank's chunk, which its relay has summed.
  template <Team T, class Table>
  static WEFT_FN bool take_chunk(T& team, const Session& s, const Work& work, const Table& table, const Route& route,
                                 std::uint64_t chunk) {
    const std::uint32_t relay = route.relay_of(s.rank(), chunk);
    const Flow flow = route.narrow();
    if (relay == s.rank() || !has(work, table, flow, s.rank(), chunk)) return true;
    const bool first = team.thread_rank() == 0;
    if (!team.all(!first || flow.await_chunk(team, relay, chunk))) return false;
    const Rows<whole> output = result(s, work, table);
    const std::uint64_t begin = chunk * flow.chunk_packs();
    const Pack* const from = flow.slot(s.rank(), chunk, relay);
    for (std::uint64_t i = team.thread_rank(); i < flow.chunk_packs() && begin + i < output.packs(); i += team.size()) {
      output.store(begin + i, team.get(from + i));
    }
    team.sync();
    if (first) flow.give_credit(team, relay, chunk);
    return true;
  }

  // Waits for the credits that no later chunk has waited for.
  template <Team T, class Table>
  static WEFT_FN bool drain(T& team, const Session& s, const Work& work, const Table& table, const Route& route,
                            std::uint64_t chunks, const Flow::Role& role) {
    const auto chunks_of = [&](std::uint32_t owner) {
      return route.wide().chunks_of(units(work, table.rows_of(owner)));
    };
    const Flow flow = route.wide(), to_owner = route.narrow();
    return Flow::each_peer(team, s, [&](std::uint32_t peer) {
      for (std::uint64_t chunk = role.block; chunk < chunks; chunk += role.blocks) {
        if (role.sends && flow.is_last_in_slot(chunk, chunks_of(route.owner_at(peer, chunk))) &&
            !flow.await_credit(team, peer, chunk)) {
          return false;
        }
        if (role.receives && peer == route.owner_at(s.rank(), chunk) &&
            to_owner.is_last_in_slot(chunk, chunks_of(peer)) && !to_owner.await_credit(team, peer, chunk)) {
          return false;
        }
      }
      return true;
    });
  }
};

}  // namespace weft::detail
