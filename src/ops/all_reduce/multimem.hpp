// Common parts of the all-reduces by NVLink's switches (multimem: one address stands for the same place in every rank's
// window). Every rank puts its message into its own window, by bank, and tells the others with a signal for each chunk.
// A load through the switch then gives the sum of all ranks' data at that place, and a store reaches all.
//
// Signals announce chunks, not blocks, so that every rank may have its own grid. A chunk and the chunks at its place in
// the other shards belong to one block in all phases.
#pragma once

#include <cstdint>

#include "ops/all_reduce/all_reduce.hpp"
#include "wire/signal.hpp"

namespace weft::detail {

// `R`: a floating sum of plain packs. `sharded`: rank r adds up packs [r · shard, (r + 1) · shard); else each rank adds
// up all.
template <class R, bool sharded>
struct MultimemAllReduce : AllReduceInstance<R, 0, false>, PrefetchesNothing {
  using Instance = AllReduceInstance<R, 0, false>;
  using typename Instance::Elements;
  using Handshake = detail::Handshake<0>;
  using Work = AllReduceWork;
  static constexpr BeginScope kBeginScope = BeginScope::block;  // a signal speaks for all threads of a block
  enum Hop : std::uint32_t { stage_hop, gather_hop };

  struct ThreadPlan {
    HeaderAddress header;  // in the control block, which has no other places
    Elements input, output;
    std::uint32_t shards;
    std::uint64_t shard;          // packs; the last ones may be shorter, or empty
    std::uint32_t block, blocks;  // this block's place among the data blocks
    std::uint32_t chunks;         // of a shard
    MultimemLayout area;
    std::byte* multicast;  // all ranks' regions
  };
  template <Team T>
  static WEFT_FN ThreadPlan thread_plan(T& team, const Call& call, const Work& work) {
    ThreadPlan p{};
    if (Handshake::in_control(team, call, p.header)) return p;
    p.input = Elements(work.input, work.count);
    p.output = Elements(work.output, work.count);
    p.shards = sharded ? call.size : 1;
    p.shard = (p.input.packs() + p.shards - 1) / p.shards;
    p.block = team.block_rank() - 1;
    p.blocks = team.blocks() - 1;
    p.chunks = static_cast<std::uint32_t>((p.shard + call.layout.pipeline_packs - 1) / call.layout.pipeline_packs);
    p.area = call.channel->multimem;
    p.multicast = call.channel->multicast;
    return p;
  }

  // Calls `serve(chunk)` for this block's chunks, until it returns false.
  template <class Serve>
  static WEFT_FN bool each_chunk(const ThreadPlan& p, Serve serve) {
    for (std::uint32_t chunk = p.block; chunk < p.chunks; chunk += p.blocks) {
      if (!serve(chunk)) return false;
    }
    return true;
  }
  // Calls `serve(pack)` for this thread's packs of a chunk of a shard, counted in the message.
  template <Team T, class Serve>
  static WEFT_FN void each_pack_of_chunk(T& team, const Session& s, const ThreadPlan& p, std::uint32_t chunk,
                                         std::uint32_t shard, Serve serve) {
    const std::uint64_t begin = chunk * s.layout().pipeline_packs, left = p.shard - begin;
    const std::uint64_t packs = left < s.layout().pipeline_packs ? left : s.layout().pipeline_packs;
    for (std::uint64_t i = team.thread_rank(); i < packs; i += team.size()) {
      const std::uint64_t pack = shard * p.shard + begin + i;
      if (pack < p.input.packs()) serve(pack);
    }
  }

  // The place of a pack of the message in every rank's region.
  static WEFT_FN std::uint64_t staged(const Session& s, const ThreadPlan& p, std::uint64_t pack) {
    return p.area.stage + (s.epoch % kBanks * p.area.packs + pack) * sizeof(Pack);
  }
  static WEFT_FN std::uint64_t gathered(const ThreadPlan& p, std::uint64_t pack) {
    return p.area.gather + pack * sizeof(Pack);
  }
  static WEFT_FN Pack* pack_at(const Session& s, std::uint32_t owner, std::uint64_t at) {
    return reinterpret_cast<Pack*>(region_of(*s.call, owner) + at);
  }
  static WEFT_FN std::uint64_t* signal_at(const Session& s, const ThreadPlan& p, std::uint32_t owner, Hop hop,
                                          std::uint32_t chunk, std::uint32_t sender) {
    const std::uint64_t index = (hop * p.area.chunks + chunk) * s.size() + sender;
    return reinterpret_cast<std::uint64_t*>(region_of(*s.call, owner) + p.area.signals) + index;
  }

  // Without a switch each rank does the switch's work itself, in rank order.
  template <Team T>
  static WEFT_FN Pack load_sum(T& team, const Session& s, const ThreadPlan& p, std::uint64_t at) {
    if constexpr (T::kMulticast) {
      return team.template load_sum<R::kType>(reinterpret_cast<const Pack*>(p.multicast + at));
    } else {
      typename R::Accumulator sum{};
      R::begin(sum, team.load(pack_at(s, 0, at)));
      for (std::uint32_t rank = 1; rank < s.size(); ++rank) R::add(sum, team.load(pack_at(s, rank, at)));
      return R::finish(sum);
    }
  }
  template <Team T>
  static WEFT_FN void store_all(T& team, const Session& s, const ThreadPlan& p, std::uint64_t at, const Pack& sum) {
    if constexpr (T::kMulticast) {
      team.store_all(reinterpret_cast<Pack*>(p.multicast + at), sum);
    } else {
      for (std::uint32_t rank = 0; rank < s.size(); ++rank) team.store(pack_at(s, rank, at), sum);
    }
  }

  // Tells every peer that the whole block has done its part of the chunk: the peer may read it.
  template <Team T>
  static WEFT_FN void announce(T& team, const Session& s, const ThreadPlan& p, Hop hop, std::uint32_t chunk) {
    team.sync();
    for (std::uint32_t turn = 1 + team.thread_rank(); turn < s.size(); turn += team.size()) {
      const std::uint32_t peer = rank_after(s.rank(), turn, s.size());
      team.store_release(signal_at(s, p, peer, hop, chunk, s.rank()), signal_word(s.epoch, chunk));
    }
  }
  // Waits until every peer has done its part of the chunk.
  template <Team T>
  static WEFT_FN bool await(T& team, const Session& s, const ThreadPlan& p, Hop hop, std::uint32_t chunk) {
    bool good = true;
    for (std::uint32_t turn = 1 + team.thread_rank(); good && turn < s.size(); turn += team.size()) {
      const std::uint32_t peer = rank_before(s.rank(), turn, s.size());
      const std::uint64_t* const word = signal_at(s, p, s.rank(), hop, chunk, peer);
      const auto arrived = [&] { return signal_reached(team.load_acquire(word), signal_word(s.epoch, chunk)); };
      good = wait(team, s, {.phase = 1u + hop}, arrived, [&] { return peer; });
    }
    good = team.all(good);
    if constexpr (T::kMulticast) team.fence_alias();
    return good;
  }

  // The first phase. In the second phase the control block compares headers.
  template <Team T>
  static WEFT_FN bool send(T& team, const Session& s, const ThreadPlan& p) {
    if (team.block_rank() == 0) {
      Handshake::send(team, s, p.header);
      return true;
    }
    return each_chunk(p, [&](std::uint32_t chunk) {
      for (std::uint32_t shard = 0; shard < p.shards; ++shard) {
        each_pack_of_chunk(team, s, p, chunk, shard, [&](std::uint64_t pack) {
          team.store(pack_at(s, s.rank(), staged(s, p, pack)), p.input.load(pack));
        });
      }
      announce(team, s, p, stage_hop, chunk);
      return true;
    });
  }
};

}  // namespace weft::detail
