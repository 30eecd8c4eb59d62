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
struct PushReduceScatter : AllReduceInstance<Reduction<type, op>, known_size, whole>, LoadsNothingEarly {
  using Instance = AllReduceInstance<Reduction<type, op>, known_size, whole>;
  using Instance::kBatch;
  using typename Instance::R;
  using typename Instance::Wire;
  using Sum = Reduction<type, op, Plain>;  // of packs without a wire format
  using Work = ReduceScatterWork<Shares>;
  using Handshake = detail::Handshake<known_size>;
  static constexpr int kPhases = 2;
  // A unit is a pack of payload; it takes one or two packs of the wire.
  static constexpr std::uint32_t kWirePacks = sizeof(Pack) / Wire::kPayloadBytes;

  struct Places {
    const Work* work;
    HeaderPlace header;  // in the control block
  };
  template <Team T>
  static WEFT_FN Places places(T& team, const Call& call, const Work& work) {
    return {.work = &work, .header = team.block_rank() == 0 ? Handshake::place(team, call) : HeaderPlace{}};
  }

  template <int phase, Team T>
  static WEFT_FN bool run(T& team, const Session& s, const Places& p, const Early&) {
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
    const std::uint64_t most = units(work, work.shares.most_rows(*s.call));
    const bool one_go = most * kWirePacks <= work.slot_packs;
    if constexpr (phase == 0) {
      if (one_go) send(team, s, work, most);
      if constexpr (Shares::kPadded) clear_pads(team, s, work);
      return true;
    } else {
      return one_go ? reduce(team, s, work) : flow(team, s, work, most);
    }
  }

 private:
  static WEFT_FN std::uint64_t units(const Work& work, std::uint64_t rows) {
    return (rows * work.row_bytes + sizeof(Pack) - 1) / sizeof(Pack);
  }
  // What this rank has for `owner`, and what it makes.
  static WEFT_FN Rows<whole> part_of(const Session& s, const Work& work, std::uint32_t owner) {
    const auto* const from = static_cast<const std::byte*>(work.input);
    return {from + work.shares.offset_of(*s.call, owner) * work.input_stride, work.shares.rows_of(owner),
            work.row_bytes, work.input_stride};
  }
  static WEFT_FN Rows<whole> result(const Session& s, const Work& work) {
    return {work.output, work.shares.rows_of(s.rank()), work.row_bytes, work.output_stride};
  }

  template <Team T>
  static WEFT_FN void clear_pads(T& team, const Session& s, const Work& work) {
    const auto [first, step] = share_of(team);
    const std::uint64_t rows = work.shares.rows_of(s.rank());
    const Rows<whole> pad(static_cast<std::byte*>(work.output) + rows * work.output_stride,
                          work.shares.slot_rows_of(*s.call, s.rank()) - rows, work.row_bytes, work.output_stride);
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
    return Instance::slot(*s.call, owner, s.layout().scatter, packs, sender) +
           s.epoch % kBanks * Instance::bank_packs(*s.call, packs);
  }

  template <Team T>
  static WEFT_FN void send(T& team, const Session& s, const Work& work, std::uint64_t most) {
    const auto [first, step] = share_of(team);
    for (std::uint32_t turn = 1; turn < Instance::size(*s.call); turn += kBatch) {
      Rows<whole> from[kBatch];
      Pack* to[kBatch] = {};
      find_parts(s, work, turn, from, [&](std::uint32_t k, std::uint32_t owner) { to[k] = slot(s, owner, s.rank()); });
      for (std::uint64_t i = first; i < most; i += step) {
        Pack payload[kBatch];
        WEFT_UNROLL
        for (std::uint32_t k = 0; k < kBatch; ++k) payload[k] = from[k].load(i);
        WEFT_UNROLL
        for (std::uint32_t k = 0; k < kBatch; ++k) {
          if (i >= from[k].packs()) continue;
          WEFT_UNROLL
          for (std::uint32_t w = 0; w < kWirePacks; ++w) {
            team.store(to[k] + i * kWirePacks + w,
                       Wire::template encode<T::kAtomicBytes>(part(payload[k], w), s.epoch));
          }
        }
      }
    }
  }
  // What goes out in the turns turn … turn + kBatch − 1; `slot_of(k, owner)` is called for each owner.
  template <class SlotOf>
  static WEFT_FN void find_parts(const Session& s, const Work& work, std::uint32_t turn, Rows<whole> (&from)[kBatch],
                                 SlotOf slot_of) {
    WEFT_UNROLL
    for (std::uint32_t k = 0; k < kBatch; ++k) {
      if (turn + k >= Instance::size(*s.call)) break;
      const std::uint32_t owner = Instance::rank_in_turn(*s.call, turn + k);
      from[k] = part_of(s, work, owner);
      slot_of(k, owner);
    }
  }

  template <Team T>
  static WEFT_FN bool reduce(T& team, const Session& s, const Work& work) {
    const auto [first, step] = share_of(team);
    const Rows<whole> input = part_of(s, work, s.rank()), output = result(s, work);
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

  template <Team T>
  static WEFT_FN bool flow(T& team, const Session& s, const Work& work, std::uint64_t most) {
    const Flow flow{&s};
    const std::uint32_t block = team.block_rank() - 1, blocks = flow.blocks(team.blocks() - 1, 1);
    if (block >= blocks) return true;
    const std::uint64_t chunks = flow.chunks_of(most);
    for (std::uint64_t chunk = block; chunk < chunks + blocks; chunk += blocks) {
      if (chunk < chunks && !send_chunk(team, s, work, flow, chunk)) return false;
      if (chunk >= blocks + block && !reduce_chunk(team, s, work, flow, chunk - blocks)) return false;
    }
    return drain(team, s, work, flow, chunks, block, blocks);
  }

  // Calls `serve(peer)` for the peers that are this thread's; true in all threads when all went well.
  template <Team T, class Serve>
  static WEFT_FN bool each_peer(T& team, const Session& s, Serve serve) {
    bool good = true;
    for (std::uint32_t turn = 1 + team.thread_rank(); good && turn < Instance::size(*s.call); turn += team.size()) {
      good = serve(Instance::rank_in_turn(*s.call, turn));
    }
    return team.all(good);
  }
  static WEFT_FN bool has(const Work& work, const Flow& flow, std::uint32_t owner, std::uint64_t chunk) {
    return chunk < flow.chunks_of(units(work, work.shares.rows_of(owner)));
  }

  template <Team T>
  static WEFT_FN bool send_chunk(T& team, const Session& s, const Work& work, const Flow& flow, std::uint64_t chunk) {
    if (!each_peer(team, s, [&](std::uint32_t owner) {
          return !has(work, flow, owner, chunk) || flow.await_slot(team, owner, chunk);
        })) {
      return false;
    }
    const std::uint64_t begin = chunk * flow.chunk_packs();
    for (std::uint32_t turn = 1; turn < Instance::size(*s.call); turn += kBatch) {
      Rows<whole> from[kBatch];
      Pack* to[kBatch] = {};
      find_parts(s, work, turn, from,
                 [&](std::uint32_t k, std::uint32_t owner) { to[k] = flow.slot(owner, chunk, s.rank()); });
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
    return each_peer(team, s, [&](std::uint32_t owner) {
      if (has(work, flow, owner, chunk)) flow.announce(team, owner, chunk);
      return true;
    });
  }

  template <Team T>
  static WEFT_FN bool reduce_chunk(T& team, const Session& s, const Work& work, const Flow& flow, std::uint64_t chunk) {
    if (!has(work, flow, s.rank(), chunk)) return true;
    if (!each_peer(team, s, [&](std::uint32_t peer) { return flow.await_chunk(team, peer, chunk); })) return false;
    const Rows<whole> input = part_of(s, work, s.rank()), output = result(s, work);
    const std::uint64_t begin = chunk * flow.chunk_packs();
    const Pack* const slots = flow.slot(s.rank(), chunk, 0);
    for (std::uint64_t i = team.thread_rank(); i < flow.chunk_packs() && begin + i < output.packs(); i += team.size()) {
      const Pack own = input.load(begin + i);
      typename Sum::Accumulator sum{};
      for (std::uint32_t first = 0; first < Instance::size(*s.call); first += kBatch) {
        Pack received[kBatch] = {};
        WEFT_UNROLL
        for (std::uint32_t k = 0; k < kBatch; ++k) {
          if (!Instance::exists(s, first + k)) break;
          received[k] = first + k == s.rank() ? own : team.get(slots + (first + k) * flow.chunk_packs() + i);
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
      output.store(begin + i, Sum::finish(sum));
    }
    team.sync();
    return each_peer(team, s, [&](std::uint32_t peer) {
      flow.give_credit(team, peer, chunk);
      return true;
    });
  }

  // Waits for the credits that no later chunk has waited for.
  template <Team T>
  static WEFT_FN bool drain(T& team, const Session& s, const Work& work, const Flow& flow, std::uint64_t chunks,
                            std::uint32_t block, std::uint32_t blocks) {
    return each_peer(team, s, [&](std::uint32_t owner) {
      const std::uint64_t sent = flow.chunks_of(units(work, work.shares.rows_of(owner)));
      for (std::uint64_t chunk = block; chunk < chunks; chunk += blocks) {
        const bool last = chunk < sent && chunk + flow.slots() >= sent;
        if (last && !flow.await_credit(team, owner, chunk)) return false;
      }
      return true;
    });
  }
};

}  // namespace weft::detail
