// Bulk all-reduce: the two hops of the two-shot, in chunks that are announced by signals, so that a message of any size
// flows through buffers of a fixed size. Per block the hops of neighbouring chunks overlap.
//
// Credits are implied. A block scatters chunk c only when it has gathered, from every peer, the chunk that had c's
// slots before, and every peer reduces a chunk before it sends its part of the gather: so the slots of the scatter area
// are free. And who receives the scatter of chunk c from a peer knows that this peer has gathered what lay in c's slots
// of the gather area. For that, one block must serve all chunks that share a slot: the number of data blocks divides
// the number of slots, at least two to one. It may differ from rank to rank.
#pragma once

#include <cstdint>

#include "algorithms/all_reduce.hpp"
#include "wire/signal.hpp"

namespace weft::detail {

template <class R, std::uint32_t known_size, bool whole>
struct BulkAllReduce : AllReduceInstance<R, known_size, whole>, LoadsNothingEarly {
  using Instance = AllReduceInstance<R, known_size, whole>;
  using Instance::exists;
  using Instance::kBatch;
  using Instance::rank_in_turn;
  using typename Instance::Elements;
  using Handshake = detail::Handshake<known_size>;
  using Work = AllReduceWork;
  static constexpr int kPhases = 2;
  enum Hop : std::uint32_t { scatter_hop, gather_hop };

  struct Places {
    HeaderPlace header;
    Elements input, output;
    std::uint64_t shard;  // packs: rank r owns [r · shard, (r + 1) · shard) of the message
    std::uint32_t mine;   // chunks of each shard that are this block's
    std::uint32_t depth;  // chunks that this block may have under way: its slots
  };
  template <Team T>
  static WEFT_FN Places places(T& team, const Call& call, const Work& work) {
    Places p{};
    if (team.block_rank() == 0) {
      p.header = Handshake::place(team, call);
      return p;
    }
    const std::uint32_t block = team.block_rank() - 1, blocks = team.blocks() - 1;
    p.input = Elements(work.input, work.count);
    p.output = Elements(work.output, work.count);
    p.shard = (p.input.packs() + Instance::size(call) - 1) / Instance::size(call);
    const auto chunks = static_cast<std::uint32_t>((p.shard + call.layout.bulk_packs - 1) / call.layout.bulk_packs);
    p.mine = block < chunks ? (chunks - block + blocks - 1) / blocks : 0;
    p.depth = static_cast<std::uint32_t>(call.layout.bulk_slots) / blocks;
    return p;
  }

  template <int phase, Team T>
  static WEFT_FN bool run(T& team, const Session& s, const Places& p, const Early&) {
    if constexpr (phase == 0) {
      if (team.block_rank() == 0) {
        Handshake::send(team, s, p.header);
      } else {
        for (std::uint32_t turn = 0; turn < p.mine && turn < p.depth / 2; ++turn) scatter(team, s, p, turn);
      }
      return true;
    } else {
      return team.block_rank() == 0 ? Handshake::compare(team, s, p.header, 1) : flow(team, s, p);
    }
  }

  template <Team T>
  static WEFT_FN bool flow(T& team, const Session& s, const Places& p) {
    const std::uint32_t ahead = p.depth / 2;  // half of the slots on their way to be reduced, half on their way back
    for (std::uint32_t turn = ahead; turn < p.mine + p.depth; ++turn) {
      if (turn >= p.depth && !gather(team, s, p, turn - p.depth)) return false;
      if (turn < p.mine) scatter(team, s, p, turn);
      if (turn - ahead < p.mine && !reduce(team, s, p, turn - ahead)) return false;
    }
    return true;
  }

  // The chunk of a turn of this block, in the shard of `owner`.
  struct Chunk {
    std::uint32_t number;
    std::uint64_t first, packs;  // of the shard
  };
  template <Team T>
  static WEFT_FN Chunk chunk_of(T& team, const Session& s, const Places& p, std::uint32_t turn) {
    const std::uint32_t number = team.block_rank() - 1 + turn * (team.blocks() - 1);
    const std::uint64_t first = number * s.layout().bulk_packs, left = p.shard - first;
    return {number, first, left < s.layout().bulk_packs ? left : s.layout().bulk_packs};
  }
  // What a tensor has of a chunk in the shard of `owner`: the last shards may be shorter, or empty.
  static WEFT_FN Elements part(const Elements& tensor, const Places& p, const Chunk& chunk, std::uint32_t owner) {
    return tensor.from(owner * p.shard + chunk.first).first(chunk.packs);
  }

  static WEFT_FN Pack* slot(const Session& s, std::uint32_t owner, Hop hop, const Chunk& chunk, std::uint32_t sender) {
    const std::uint64_t area = hop == scatter_hop ? s.layout().bulk_scatter : s.layout().bulk_gather;
    const std::uint64_t index = chunk.number % s.layout().bulk_slots * Instance::size(*s.call) + sender;
    return Instance::slot(*s.call, owner, area, s.layout().bulk_packs, 0) + index * s.layout().bulk_packs;
  }
  static WEFT_FN std::uint64_t* signal_at(const Session& s, std::uint32_t owner, Hop hop, const Chunk& chunk,
                                          std::uint32_t sender) {
    const std::uint64_t slots = s.layout().bulk_slots;
    const std::uint64_t index = (hop * slots + chunk.number % slots) * Instance::size(*s.call) + sender;
    return reinterpret_cast<std::uint64_t*>(region_of(*s.call, owner) + s.layout().bulk_signals) + index;
  }

  // All of the block has put its packs of the chunk in place at every peer.
  template <Team T>
  static WEFT_FN void announce(T& team, const Session& s, Hop hop, const Chunk& chunk) {
    team.sync();
    for (std::uint32_t turn = 1 + team.thread_rank(); turn < Instance::size(*s.call); turn += team.size()) {
      std::uint64_t* const word = signal_at(s, rank_in_turn(*s.call, turn), hop, chunk, s.rank());
      team.store_release(word, signal_word(s.epoch, chunk.number));
    }
  }
  template <Team T>
  static WEFT_FN bool await(T& team, const Session& s, Hop hop, const Chunk& chunk) {
    bool good = true;
    for (std::uint32_t turn = 1 + team.thread_rank(); good && turn < Instance::size(*s.call); turn += team.size()) {
      const std::uint32_t peer = rank_in_turn(*s.call, turn);
      const std::uint64_t* const word = signal_at(s, s.rank(), hop, chunk, peer);
      const std::uint64_t wanted = signal_word(s.epoch, chunk.number);
      const auto arrived = [&] { return signal_reached(team.load_acquire(word), wanted); };
      good = wait(team, s, {.phase = 1u + hop}, arrived, [&] { return peer; });
    }
    return team.all(good);
  }

  template <Team T>
  static WEFT_FN void scatter(T& team, const Session& s, const Places& p, std::uint32_t turn) {
    const Chunk chunk = chunk_of(team, s, p, turn);
    for (std::uint32_t first = 1; first < Instance::size(*s.call); first += kBatch) {
      Elements from[kBatch];
      Pack* to[kBatch] = {};
      WEFT_UNROLL
      for (std::uint32_t k = 0; k < kBatch; ++k) {
        if (first + k >= Instance::size(*s.call)) break;
        const std::uint32_t owner = rank_in_turn(*s.call, first + k);
        from[k] = part(p.input, p, chunk, owner);
        to[k] = slot(s, owner, scatter_hop, chunk, s.rank());
      }
      for (std::uint64_t i = team.thread_rank(); i < chunk.packs; i += team.size()) {
        Pack payload[kBatch];
        WEFT_UNROLL
        for (std::uint32_t k = 0; k < kBatch; ++k) payload[k] = i < from[k].packs() ? from[k].load(i) : Pack{};
        WEFT_UNROLL
        for (std::uint32_t k = 0; k < kBatch; ++k) {
          if (i < from[k].packs()) team.put(to[k] + i, payload[k]);
        }
      }
    }
    announce(team, s, scatter_hop, chunk);
  }

  template <Team T>
  static WEFT_FN bool reduce(T& team, const Session& s, const Places& p, std::uint32_t turn) {
    const Chunk chunk = chunk_of(team, s, p, turn);
    if (!await(team, s, scatter_hop, chunk)) return false;
    const Elements input = part(p.input, p, chunk, s.rank());
    const Elements output = part(p.output, p, chunk, s.rank());
    const Pack* const slots = slot(s, s.rank(), scatter_hop, chunk, 0);
    for (std::uint64_t i = team.thread_rank(); i < output.packs(); i += team.size()) {
      const Pack own = input.load(i);
      typename R::Accumulator sum{};
      for (std::uint32_t first = 0; first < Instance::size(*s.call); first += kBatch) {
        Pack received[kBatch] = {};
        WEFT_UNROLL
        for (std::uint32_t k = 0; k < kBatch; ++k) {
          if (!exists(s, first + k)) break;
          received[k] = first + k == s.rank() ? own : team.get(slots + (first + k) * s.layout().bulk_packs + i);
        }
        WEFT_UNROLL
        for (std::uint32_t k = 0; k < kBatch; ++k) {
          if (!exists(s, first + k)) break;
          if (first + k == 0) {
            R::begin(sum, received[k]);
          } else {
            R::add(sum, received[k]);
          }
        }
      }
      const Pack payload = R::finish(sum);
      output.store(i, payload);
      for (std::uint32_t next = 1; next < Instance::size(*s.call); ++next) {
        team.put(slot(s, rank_in_turn(*s.call, next), gather_hop, chunk, s.rank()) + i, payload);
      }
    }
    announce(team, s, gather_hop, chunk);
    return true;
  }

  template <Team T>
  static WEFT_FN bool gather(T& team, const Session& s, const Places& p, std::uint32_t turn) {
    const Chunk chunk = chunk_of(team, s, p, turn);
    if (!await(team, s, gather_hop, chunk)) return false;
    for (std::uint32_t next = 1; next < Instance::size(*s.call); ++next) {
      const std::uint32_t owner = rank_in_turn(*s.call, next);
      const Elements to = part(p.output, p, chunk, owner);
      const Pack* const from = slot(s, s.rank(), gather_hop, chunk, owner);
      for (std::uint64_t i = team.thread_rank(); i < to.packs(); i += team.size()) to.store(i, team.get(from + i));
    }
    return true;
  }
};

}  // namespace weft::detail
