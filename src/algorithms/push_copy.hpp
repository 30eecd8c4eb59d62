// Copies between ranks by push, bit for bit: all-gather, all-to-all, broadcast, equal and ragged, are one algorithm
// with different shares (shares.hpp). Every rank pushes what it has for a peer into that peer's window, and the peer
// moves it to where it belongs.
//
// Messages that fit into a slot go as lines, which carry their own arrival; larger ones flow in chunks (flow.hpp).
// In turn t a rank sends to the rank t places on and receives from the one t places back: so whatever a rank waits for
// in a turn was sent in a turn of the same number, and no circle of waiting ranks can close.
#pragma once

#include <cstdint>

#include "algorithms/all_reduce.hpp"
#include "algorithms/copy_work.hpp"
#include "algorithms/flow.hpp"
#include "algorithms/handshake.hpp"
#include "algorithms/shares.hpp"
#include "core/rows.hpp"
#include "wire/line.hpp"

namespace weft::detail {

template <class Shares, bool whole, std::uint32_t most_tensors>
struct PushCopy {
  using Work = CopyWork<Shares, most_tensors>;
  using Handshake = detail::Handshake<0>;
  static constexpr std::uint32_t kSize = 0;
  static constexpr int kPhases = 2;

  // A thread's unit of the messages of a turn, in lines.
  struct Unit {
    std::uint32_t turn;
    std::uint32_t number;
    bool exists;
  };

  // Where shares are known beforehand, a thread finds its first unit, in bank 0, before the kernel before has ended.
  struct Places {
    const Work* work;
    HeaderPlace header;  // in the control block, which has nothing else
    Unit unit;
    Pack* to;
    Pack* from;
  };
  template <Team T>
  static WEFT_FN Places places(T& team, const Call& call, const Work& work) {
    Places p{};
    p.work = &work;
    if (team.block_rank() == 0) {
      p.header = Handshake::place(team, call);
    } else if constexpr (Shares::kKnownEarly) {
      using Wire = Bundle<T::kAtomicBytes>;
      const std::uint64_t units = length<InBundles<Wire>>(work, work.shares.most_rows(call));
      if (!in_lines<Wire>(work, units) || call.size == 1) return p;
      p.unit = unit_of(team, call, static_cast<std::uint32_t>(units), team.block_rank() - 1);
      p.to = slot<Wire>(call, receiver_in(call, p.unit.turn), call.rank, p.unit.number);
      p.from = slot<Wire>(call, call.rank, sender_in(call, p.unit.turn), p.unit.number);
      team.settle(p.to);
      team.settle(p.from);
    }
    return p;
  }

  // What the first unit sends.
  struct Early {
    Pack payload[3];
  };
  template <Team T>
  static WEFT_FN Early early(T&, const Session& s, const Places& p) {
    Early early{};
    if constexpr (Shares::kKnownEarly) {
      if (p.unit.exists) load_unit<Bundle<T::kAtomicBytes>>(s, *p.work, p.unit, early.payload);
    }
    return early;
  }

  template <int phase, Team T>
  static WEFT_FN bool run(T& team, const Session& s, const Places& p, const Early& early) {
    const Work& work = *p.work;
    if (team.block_rank() == 0) {
      if constexpr (phase == 1) return Handshake::compare(team, s, p.header, 1);
      if (!work.shares.fit(*s.call)) {
        if (team.thread_rank() == 0) report(team, id_of(s), {.code = Errc::capacity});
        return false;
      }
      Handshake::send(team, s, p.header);
      return true;
    }
    if (!work.shares.fit(*s.call)) return false;  // the control block says so
    using Wire = Bundle<T::kAtomicBytes>;
    const std::uint64_t most = length<InBundles<Wire>>(work, work.shares.most_rows(*s.call));
    const bool lines = in_lines<Wire>(work, most);
    if constexpr (phase == 0) {
      if (lines) send_lines<Wire>(team, s, p, early);
      copy_own(team, s, work);
      if constexpr (Shares::kPadded) clear_pads(team, s, work);
      return true;
    } else {
      return lines ? receive_lines<Wire>(team, s, p, static_cast<std::uint32_t>(most)) : flow(team, s, work);
    }
  }

 private:
  static WEFT_FN std::uint32_t receiver_in(const Call& call, std::uint32_t turn) {
    const std::uint32_t sum = call.rank + turn;
    return sum < call.size ? sum : sum - call.size;
  }
  static WEFT_FN std::uint32_t sender_in(const Call& call, std::uint32_t turn) {
    return call.rank >= turn ? call.rank - turn : call.rank + call.size - turn;
  }
  // `units`: of the longest message.
  template <class Wire>
  static WEFT_FN bool in_lines(const Work& work, std::uint64_t units) {
    return units * Wire::kWirePacks <= work.line_packs;
  }

  // Units of a message of `rows` rows.
  template <class Unit>
  static WEFT_FN std::uint64_t length(const CopyTensor& tensor, std::uint64_t rows) {
    return Unit::count((rows * tensor.row_bytes + sizeof(Pack) - 1) / sizeof(Pack));
  }
  template <class Unit>
  static WEFT_FN std::uint64_t length(const Work& work, std::uint64_t rows) {
    std::uint64_t units = 0;
    for (std::uint32_t t = 0; t < tensors(work); ++t) units += length<Unit>(work.tensor[t], rows);
    return units;
  }
  static WEFT_FN std::uint32_t tensors(const Work& work) { return most_tensors == 1 ? 1 : work.tensors; }

  // Moves `unit` on to its place in the tensor that it belongs to.
  template <class Unit>
  static WEFT_FN const CopyTensor& tensor_of(const Work& work, std::uint64_t rows, std::uint64_t& unit) {
    std::uint32_t t = 0;
    for (; t + 1 < tensors(work); ++t) {
      const std::uint64_t units = length<Unit>(work.tensor[t], rows);
      if (unit < units) break;
      unit -= units;
    }
    return work.tensor[t];
  }

  // What goes to `receiver`, and where what comes from `sender` belongs.
  static WEFT_FN Rows<whole> outgoing(const Session& s, const Work& work, const CopyTensor& t, std::uint64_t rows,
                                      std::uint32_t receiver) {
    const auto* const from = static_cast<const std::byte*>(t.input);
    return {from + work.shares.input_row(*s.call, receiver) * t.input_stride, rows, t.row_bytes, t.input_stride};
  }
  static WEFT_FN Rows<whole> incoming(const Session& s, const Work& work, const CopyTensor& t, std::uint64_t rows,
                                      std::uint32_t sender) {
    auto* const to = static_cast<std::byte*>(t.output);
    return {to + work.shares.output_row(*s.call, sender) * t.output_stride, rows, t.row_bytes, t.output_stride};
  }

  template <Team T>
  static WEFT_FN void copy_own(T& team, const Session& s, const Work& work) {
    const auto [first, step] = share_of(team);
    const std::uint64_t rows = work.shares.rows_of(s.rank());
    const std::uint64_t packs = length<InPacks>(work, rows);
    for (std::uint64_t i = first; i < packs; i += step) {
      std::uint64_t pack = i;
      const CopyTensor& t = tensor_of<InPacks>(work, rows, pack);
      incoming(s, work, t, rows, s.rank()).store(pack, outgoing(s, work, t, rows, s.rank()).load(pack));
    }
  }

  template <Team T>
  static WEFT_FN void clear_pads(T& team, const Session& s, const Work& work) {
    const auto [first, step] = share_of(team);
    for (std::uint32_t rank = 0; rank < s.size(); ++rank) {
      const std::uint64_t rows = work.shares.rows_of(rank), pads = work.shares.slot_rows_of(*s.call, rank) - rows;
      if (pads == 0) continue;
      for (std::uint32_t t = 0; t < tensors(work); ++t) {
        const CopyTensor& tensor = work.tensor[t];
        auto* const to = static_cast<std::byte*>(tensor.output) +
                         (work.shares.output_row(*s.call, rank) + rows) * tensor.output_stride;
        const Rows<whole> pad(to, pads, tensor.row_bytes, tensor.output_stride);
        for (std::uint64_t i = first; i < pad.packs(); i += step) pad.store(i, Pack{});
      }
    }
  }

  // ---------------------------------------------------------------------------------------------------------- lines

  // Item `item` of messages of `units` units: neighbouring blocks serve different peers, and one block serves different
  // ones in turn.
  template <Team T>
  static WEFT_FN Unit unit_of(T& team, const Call& call, std::uint32_t units, std::uint32_t item) {
    const std::uint32_t peers = call.size - 1, part = item / peers;
    const std::uint32_t number = part * team.size() + team.thread_rank();
    return {.turn = 1 + (item + part) % peers, .number = number, .exists = number < units};
  }
  // Calls `serve(unit)` for this thread's units from item `first` on.
  template <Team T, class Serve>
  static WEFT_FN bool each_unit(T& team, const Session& s, std::uint32_t units, std::uint32_t first, Serve serve) {
    const std::uint32_t items = (units + team.size() - 1) / team.size() * (s.size() - 1);
    for (std::uint32_t item = first; item < items; item += team.blocks() - 1) {
      const Unit unit = unit_of(team, *s.call, units, item);
      if (unit.exists && !serve(unit)) return false;
    }
    return true;
  }
  // The first item that was not prepared before the call.
  template <Team T>
  static WEFT_FN std::uint32_t first_item(T& team) {
    return team.block_rank() - 1 + (Shares::kKnownEarly ? team.blocks() - 1 : 0);
  }

  // In bank 0.
  template <class Wire>
  static WEFT_FN Pack* slot(const Call& call, std::uint32_t owner, std::uint32_t sender, std::uint64_t unit) {
    return reinterpret_cast<Pack*>(region_of(call, owner) + call.layout.gather) + sender * call.layout.two_shot_packs +
           wire_pack<Wire>(unit, 0);
  }
  static WEFT_FN std::uint64_t bank(const Session& s) {
    return s.epoch % kBanks * s.size() * s.layout().two_shot_packs;
  }

  // The last tile of a tensor need not be full.
  template <class Wire>
  static WEFT_FN bool carries(const Work& work, std::uint64_t rows, std::uint64_t number) {
    if (number >= length<InBundles<Wire>>(work, rows)) return false;
    const CopyTensor& t = tensor_of<InBundles<Wire>>(work, rows, number);
    return payload_pack<Wire>(number, 0) < length<InPacks>(t, rows);
  }

  template <class Wire>
  static WEFT_FN void load_unit(const Session& s, const Work& work, const Unit& unit, Pack* payload) {
    const std::uint64_t rows = work.shares.rows_of(s.rank());
    std::uint64_t number = unit.number;
    if (!carries<Wire>(work, rows, number)) return;
    const CopyTensor& t = tensor_of<InBundles<Wire>>(work, rows, number);
    const Rows<whole> from = outgoing(s, work, t, rows, receiver_in(*s.call, unit.turn));
    WEFT_UNROLL
    for (std::uint32_t k = 0; k < Wire::kPayloadPacks; ++k) payload[k] = from.load(payload_pack<Wire>(number, k));
  }

  template <class Wire, Team T>
  static WEFT_FN void send_lines(T& team, const Session& s, const Places& p, const Early& early) {
    const Work& work = *p.work;
    const std::uint64_t rows = work.shares.rows_of(s.rank());
    const auto units = static_cast<std::uint32_t>(length<InBundles<Wire>>(work, rows));
    const auto send = [&](Pack* to, const Pack* payload) {
      WEFT_UNROLL
      for (std::uint32_t k = 0; k < Wire::kWirePacks; ++k)
        team.store(to + k * Wire::kTile, Wire::encode(payload, k, s.epoch));
    };
    if (p.unit.exists && carries<Wire>(work, rows, p.unit.number)) send(p.to + bank(s), early.payload);
    each_unit(team, s, units, first_item(team), [&](const Unit& unit) {
      if (!carries<Wire>(work, rows, unit.number)) return true;
      Pack payload[Wire::kPayloadPacks] = {};
      load_unit<Wire>(s, work, unit, payload);
      send(slot<Wire>(*s.call, receiver_in(*s.call, unit.turn), s.rank(), unit.number) + bank(s), payload);
      return true;
    });
  }

  // `most`: units of the longest message.
  template <class Wire, Team T>
  static WEFT_FN bool receive_lines(T& team, const Session& s, const Places& p, std::uint32_t most) {
    const Work& work = *p.work;
    const auto receive = [&](const Unit& unit, Pack* from) {
      const std::uint32_t sender = sender_in(*s.call, unit.turn);
      const std::uint64_t rows = work.shares.rows_of(sender);
      std::uint64_t number = unit.number;
      if (!carries<Wire>(work, rows, number)) return true;
      Pack wire[Wire::kWirePacks];
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
      Pack payload[Wire::kPayloadPacks];
      Wire::decode(wire, payload);
      const CopyTensor& t = tensor_of<InBundles<Wire>>(work, rows, number);
      const Rows<whole> to = incoming(s, work, t, rows, sender);
      WEFT_UNROLL
      for (std::uint32_t k = 0; k < Wire::kPayloadPacks; ++k) to.store(payload_pack<Wire>(number, k), payload[k]);
      return true;
    };
    if (p.unit.exists && !receive(p.unit, p.from + bank(s))) return false;
    return each_unit(team, s, most, first_item(team), [&](const Unit& unit) {
      return receive(unit, slot<Wire>(*s.call, s.rank(), sender_in(*s.call, unit.turn), unit.number) + bank(s));
    });
  }

  // --------------------------------------------------------------------------------------------------------- chunks

  // What a block moves at a time: chunk `number` of the messages of a turn.
  struct Chunk {
    std::uint32_t turn;
    std::uint64_t number;
  };

  template <Team T>
  static WEFT_FN bool flow(T& team, const Session& s, const Work& work) {
    const Flow flow{&s};
    const std::uint32_t peers = s.size() - 1;
    const std::uint32_t block = team.block_rank() - 1, blocks = flow.blocks(team.blocks() - 1, peers);
    if (block >= blocks || peers == 0) return true;
    const std::uint64_t items = flow.chunks_of(length<InPacks>(work, work.shares.most_rows(*s.call))) * peers;
    const std::uint64_t mine = block < items ? (items - block + blocks - 1) / blocks : 0;
    const auto chunk = [&](std::uint64_t k) {
      const std::uint64_t item = block + k * blocks, number = item / peers;
      return Chunk{static_cast<std::uint32_t>(1 + (item + number) % peers), number};
    };
    for (std::uint64_t k = 0; k < mine + 1; ++k) {
      if (k < mine && !send_chunk(team, s, work, flow, chunk(k))) return false;
      if (k != 0 && !receive_chunk(team, s, work, flow, chunk(k - 1))) return false;
    }
    return drain(team, s, work, flow, mine, chunk);
  }

  // Calls `load(tensor, pack of the tensor, pack of the slot)` for this thread's packs of a chunk of a message, a few
  // at a time, and `store` with what it gave.
  template <Team T, class Load, class Store>
  static WEFT_FN void each_pack(T& team, const Flow& flow, const Work& work, std::uint64_t rows, std::uint64_t number,
                                Load load, Store store) {
    constexpr std::uint32_t kAtOnce = 4;
    const std::uint64_t first = number * flow.chunk_packs(), left = length<InPacks>(work, rows) - first;
    const std::uint64_t packs = left < flow.chunk_packs() ? left : flow.chunk_packs();
    for (std::uint64_t i = team.thread_rank(); i < packs; i += kAtOnce * team.size()) {
      const CopyTensor* tensor[kAtOnce] = {};
      std::uint64_t pack[kAtOnce] = {};
      Pack payload[kAtOnce] = {};
      WEFT_UNROLL
      for (std::uint32_t k = 0; k < kAtOnce; ++k) {
        if (i + k * team.size() >= packs) break;
        pack[k] = first + i + k * team.size();
        tensor[k] = &tensor_of<InPacks>(work, rows, pack[k]);
        payload[k] = load(*tensor[k], pack[k], i + k * team.size());
      }
      WEFT_UNROLL
      for (std::uint32_t k = 0; k < kAtOnce; ++k) {
        if (i + k * team.size() >= packs) break;
        store(*tensor[k], pack[k], i + k * team.size(), payload[k]);
      }
    }
  }

  template <Team T>
  static WEFT_FN bool send_chunk(T& team, const Session& s, const Work& work, const Flow& flow, const Chunk& chunk) {
    const std::uint64_t rows = work.shares.rows_of(s.rank());
    const std::uint32_t peer = receiver_in(*s.call, chunk.turn);
    if (chunk.number >= flow.chunks_of(length<InPacks>(work, rows))) return true;
    const bool first = team.thread_rank() == 0;
    if (!team.all(!first || flow.await_slot(team, peer, chunk.number))) return false;
    Pack* const to = flow.slot(peer, chunk.number, s.rank());
    each_pack(
        team, flow, work, rows, chunk.number,
        [&](const CopyTensor& t, std::uint64_t pack, std::uint64_t) {
          return outgoing(s, work, t, rows, peer).load(pack);
        },
        [&](const CopyTensor&, std::uint64_t, std::uint64_t i, const Pack& payload) { team.put(to + i, payload); });
    team.sync();
    if (first) flow.announce(team, peer, chunk.number);
    return true;
  }

  template <Team T>
  static WEFT_FN bool receive_chunk(T& team, const Session& s, const Work& work, const Flow& flow, const Chunk& chunk) {
    const std::uint32_t peer = sender_in(*s.call, chunk.turn);
    const std::uint64_t rows = work.shares.rows_of(peer);
    if (chunk.number >= flow.chunks_of(length<InPacks>(work, rows))) return true;
    const bool first = team.thread_rank() == 0;
    if (!team.all(!first || flow.await_chunk(team, peer, chunk.number))) return false;
    const Pack* const from = flow.slot(s.rank(), chunk.number, peer);
    each_pack(
        team, flow, work, rows, chunk.number,
        [&](const CopyTensor&, std::uint64_t, std::uint64_t i) { return team.get(from + i); },
        [&](const CopyTensor& t, std::uint64_t pack, std::uint64_t, const Pack& payload) {
          incoming(s, work, t, rows, peer).store(pack, payload);
        });
    team.sync();
    if (first) flow.give_credit(team, peer, chunk.number);
    return true;
  }

  // Waits for the credits that no later chunk has waited for.
  template <Team T, class ChunkIn>
  static WEFT_FN bool drain(T& team, const Session& s, const Work& work, const Flow& flow, std::uint64_t mine,
                            ChunkIn chunk_in) {
    const std::uint64_t chunks = flow.chunks_of(length<InPacks>(work, work.shares.rows_of(s.rank())));
    for (std::uint64_t k = team.thread_rank(); k < mine; k += team.size()) {
      const Chunk chunk = chunk_in(k);
      const bool last = chunk.number < chunks && chunk.number + flow.slots() >= chunks;
      if (last && !flow.await_credit(team, receiver_in(*s.call, chunk.turn), chunk.number)) return false;
    }
    return true;
  }
};

}  // namespace weft::detail
