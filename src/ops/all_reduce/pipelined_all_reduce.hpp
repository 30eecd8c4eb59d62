// Pipelined all-reduce: the two hops of the two-shot, in chunks that signals announce. So a message of any size flows
// through buffers of a fixed size. A chunk is scattered, then reduced with its sums sent, then gathered. Either a block
// does all three, and the hops of neighbouring chunks overlap in its turns. Or some blocks reduce and the others
// scatter and gather, so that a few processors always have something to send. These movers begin with as many chunks as
// they have slots, and end with sums alone.
//
// Credits are implied. A rank scatters a chunk only after it has gathered, from every peer, the chunk that had its
// slots before. Every peer reduces a chunk before it sends its part of the gather: so the slots of the scatter area are
// free. A peer scatters a chunk only after it has gathered the earlier contents of the chunk's slots in the gather
// area. So a rank that receives the scatter may send its sums there. The block that scatters a chunk has itself
// gathered the earlier contents of its slots. For slots are dealt to the blocks that scatter, two or more to each if
// there are 32. The blocks' number and duties may differ from rank to rank.
#pragma once

#include <cstdint>

#include "ops/all_reduce/all_reduce.hpp"
#include "wire/signal.hpp"

namespace weft::detail {

template <class R, std::uint32_t known_size, bool aligned16>
struct PipelinedAllReduce : AllReduceInstance<R, known_size, aligned16>, PrefetchesNothing {
  using Instance = AllReduceInstance<R, known_size, aligned16>;
  using Instance::kBatch;
  using Instance::kSpecialized;
  using Instance::rank_in_turn;
  using typename Instance::Elements;
  using Handshake = detail::Handshake<known_size>;
  using Work = AllReduceWork;
  static constexpr int kPhases = 2;
  static constexpr BeginScope kBeginScope = BeginScope::block;
  static WEFT_FN std::uint32_t warp_groups(const Work& work) { return work.warp_groups; }
  static constexpr std::uint32_t kOthers = kSpecialized ? kBatch - 1 : kBatch;  // peers handled at once
  enum Hop : std::uint32_t { scatter_hop, gather_hop };
  enum class Duty : std::uint8_t { all, reduce, move };  // all: both

  struct ThreadPlan {
    HeaderAddress header;
    Elements input, output;
    std::uint64_t shard;   // packs: rank r owns [r · shard, (r + 1) · shard) of the message
    std::uint32_t chunks;  // of each shard
    Duty duty;
    // This block's slots are first, first + step, …; if it only reduces, these are its chunks.
    std::uint32_t first, step;
    std::uint32_t mine;  // chunks
    // For a block that moves; 0 for others. `depth`: its slots, so chunks that it may have under way. `ahead`: chunks
    // that it scatters before anything else. With all duties half of its chunks are on their way to be reduced, half on
    // their way back.
    std::uint32_t depth, ahead;
    ReduceOp op;
  };
  template <Team T>
  static WEFT_FN ThreadPlan thread_plan(T& team, const Call& call, const Work& work) {
    ThreadPlan p{};
    p.input = Elements(work.input, work.count);  // in any block: a pointer that may be null takes registers
    p.output = Elements(work.output, work.count);
    p.op = work.op;
    if (Handshake::in_control(team, call, p.header)) return p;
    p.shard = (p.input.packs() + Instance::size(call) - 1) / Instance::size(call);
    p.chunks = static_cast<std::uint32_t>((p.shard + call.layout.pipeline_packs - 1) / call.layout.pipeline_packs);
    find_duty(p, team.block_rank() - 1, team.blocks() - 1, static_cast<std::uint32_t>(call.layout.pipeline_slots),
              work.apart);
    return p;
  }
  static WEFT_FN void find_duty(ThreadPlan& p, std::uint32_t block, std::uint32_t blocks, std::uint32_t slots,
                                bool apart) {
    const std::uint32_t depth = apart ? slots_of_mover(blocks, slots) : slots / blocks;
    const std::uint32_t movers = (slots + depth - 1) / depth;
    if (apart && block >= movers) {
      p.duty = Duty::reduce, p.first = block - movers, p.step = blocks - movers;
      p.mine = count_from(p.first, p.step, p.chunks);
    } else {
      p.duty = apart ? Duty::move : Duty::all, p.first = block, p.step = movers;
      p.depth = count_from(p.first, p.step, slots);
      p.ahead = apart ? p.depth : p.depth / 2;
      p.mine = p.chunks / slots * p.depth + count_from(p.first, p.step, p.chunks % slots);
    }
  }
  // Slots of each mover; the last movers may have fewer. Movers are fewer than half of all blocks, because reducing is
  // more work.
  static WEFT_FN std::uint32_t slots_of_mover(std::uint32_t blocks, std::uint32_t slots) {
    const std::uint32_t most = blocks * 49 / 100;
    const std::uint32_t each = most == 0 ? slots : (slots + most - 1) / most;
    return each < 2 ? 2 : each;
  }
  // The number of first, first + step, … that are less than `end`.
  static WEFT_FN std::uint32_t count_from(std::uint32_t first, std::uint32_t step, std::uint32_t end) {
    return first < end ? (end - first + step - 1) / step : 0;
  }

  template <int phase, Team T>
  static WEFT_FN bool run(T& team, const Session& s, const Work&, const ThreadPlan& p, const Prefetched&) {
    if constexpr (phase == 0) {
      if (team.block_rank() == 0) {
        Handshake::send(team, s, p.header);
      } else {
        for (std::uint32_t turn = 0; turn < p.mine && turn < p.ahead; ++turn) scatter(team, s, p, turn);
      }
      return true;
    } else {
      return team.block_rank() == 0 ? Handshake::compare(team, s, p.header, 1) : flow(team, s, p);
    }
  }

  template <Team T>
  static WEFT_FN bool flow(T& team, const Session& s, const ThreadPlan& p) {
    const bool moves = p.duty != Duty::reduce, reduces = p.duty != Duty::move;
    for (std::uint32_t turn = p.ahead; turn < p.mine + p.depth; ++turn) {
      if (moves && turn >= p.depth && !gather(team, s, p, turn - p.depth)) return false;
      if (moves && turn < p.mine) scatter(team, s, p, turn);
      if (reduces && turn - p.ahead < p.mine && !reduce(team, s, p, turn - p.ahead)) return false;
    }
    return true;
  }

  struct Chunk {
    std::uint32_t number, slot;
    std::uint64_t first;  // pack of the shard
    std::uint32_t packs;
  };
  static WEFT_FN Chunk chunk_of(const Session& s, const ThreadPlan& p, std::uint32_t turn) {
    const auto slots = static_cast<std::uint32_t>(s.layout().pipeline_slots);
    const bool by_slot = p.duty != Duty::reduce;
    const std::uint32_t number =
        by_slot ? turn / p.depth * slots + p.first + turn % p.depth * p.step : p.first + turn * p.step;
    const std::uint64_t first = number * s.layout().pipeline_packs, left = p.shard - first;
    return {.number = number,
            .slot = number % slots,
            .first = first,
            .packs = static_cast<std::uint32_t>(left < s.layout().pipeline_packs ? left : s.layout().pipeline_packs)};
  }
  // The part of a tensor's chunk in the shard of `owner`: the last shards may be shorter, or empty.
  static WEFT_FN Elements part(const Elements& tensor, const ThreadPlan& p, const Chunk& chunk, std::uint32_t owner) {
    return tensor.from(owner * p.shard + chunk.first).first(chunk.packs);
  }

  static WEFT_FN Pack* slot(const Session& s, std::uint32_t owner, Hop hop, const Chunk& chunk, std::uint32_t sender) {
    const std::uint64_t area = hop == scatter_hop ? s.layout().pipeline_scatter : s.layout().pipeline_gather;
    const std::uint64_t index = std::uint64_t{chunk.slot} * Instance::size(*s.call) + sender;
    return Instance::slot(*s.call, owner, area, s.layout().pipeline_packs, 0) + index * s.layout().pipeline_packs;
  }
  static WEFT_FN std::uint64_t* signal_at(const Session& s, std::uint32_t owner, Hop hop, const Chunk& chunk,
                                          std::uint32_t sender) {
    const std::uint64_t index = (hop * s.layout().pipeline_slots + chunk.slot) * Instance::size(*s.call) + sender;
    return reinterpret_cast<std::uint64_t*>(region_of(*s.call, owner) + s.layout().pipeline_signals) + index;
  }

  // Tells every peer that the whole block has put its packs of the chunk in place there.
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

  // Calls `load(i, payload)` and `store(i, payload)` for this thread's i below `packs`, `some` at a time. It loads a
  // batch ahead, so loads go on while stores are made. It only does whole batches of all threads, and returns their
  // number of packs.
  template <std::uint32_t some, std::uint32_t width, Team T, class Load, class Store>
  static WEFT_FN std::uint32_t stream(T& team, std::uint32_t packs, Load load, Store store) {
    using Batch = Pack[some][width];
    if (!kSpecialized || T::kPacksAhead == 1) return 0;
    const std::uint32_t thread = team.thread_rank(), step = team.size(), batches = packs / (some * step);
    const auto load_batch = [&](std::uint32_t batch, Batch& payload) {
      WEFT_UNROLL
      for (std::uint32_t k = 0; k < some; ++k) load((batch * some + k) * step + thread, payload[k]);
    };
    const auto store_batch = [&](std::uint32_t batch, const Batch& payload) {
      WEFT_UNROLL
      for (std::uint32_t k = 0; k < some; ++k) store((batch * some + k) * step + thread, payload[k]);
    };
    Batch one{}, other{};
    if (batches != 0) load_batch(0, one);
    for (std::uint32_t batch = 0; batch < batches; batch += 2) {
      if (batch + 1 < batches) load_batch(batch + 1, other);
      store_batch(batch, one);
      if (batch + 2 < batches) load_batch(batch + 2, one);
      if (batch + 1 < batches) store_batch(batch + 1, other);
    }
    return batches * some * step;
  }
  // The number of times that `each` packs are handled at once: more than one if there are registers.
  template <Team T>
  static WEFT_FN constexpr std::uint32_t at_once(std::uint32_t each) {
    return kSpecialized && each <= T::kPacksAhead ? T::kPacksAhead / each : 1;
  }

  template <Team T>
  static WEFT_FN void scatter(T& team, const Session& s, const ThreadPlan& p, std::uint32_t turn) {
    const Chunk chunk = chunk_of(s, p, turn);
    for (std::uint32_t first = 1; first < Instance::size(*s.call); first += kOthers) {
      Elements from[kOthers];
      Pack* to[kOthers] = {};
      std::uint32_t least = chunk.packs;
      WEFT_UNROLL
      for (std::uint32_t k = 0; k < kOthers; ++k) {
        if (first + k >= Instance::size(*s.call)) break;
        const std::uint32_t owner = rank_in_turn(*s.call, first + k);
        from[k] = part(p.input, p, chunk, owner);
        to[k] = slot(s, owner, scatter_hop, chunk, s.rank());
        if (from[k].packs() < least) least = static_cast<std::uint32_t>(from[k].packs());
      }
      const std::uint32_t done = stream<at_once<T>(kOthers), kOthers>(
          team, least,
          [&](std::uint32_t i, Pack(&payload)[kOthers]) {
            WEFT_UNROLL
            for (std::uint32_t k = 0; k < kOthers; ++k) payload[k] = from[k].load(i);
          },
          [&](std::uint32_t i, const Pack(&payload)[kOthers]) {
            WEFT_UNROLL
            for (std::uint32_t k = 0; k < kOthers; ++k) team.put(to[k] + i, payload[k]);
          });
      for (std::uint32_t i = done + team.thread_rank(); i < chunk.packs; i += team.size()) {
        Pack payload[kOthers];
        WEFT_UNROLL
        for (std::uint32_t k = 0; k < kOthers; ++k) payload[k] = i < from[k].packs() ? from[k].load(i) : Pack{};
        WEFT_UNROLL
        for (std::uint32_t k = 0; k < kOthers; ++k) {
          if (i < from[k].packs()) team.put(to[k] + i, payload[k]);
        }
      }
    }
    announce(team, s, scatter_hop, chunk);
  }

  template <Team T>
  static WEFT_FN bool reduce(T& team, const Session& s, const ThreadPlan& p, std::uint32_t turn) {
    const Chunk chunk = chunk_of(s, p, turn);
    if (!await(team, s, scatter_hop, chunk)) return false;
    const Elements input = part(p.input, p, chunk, s.rank());
    const Elements output = part(p.output, p, chunk, s.rank());
    const Pack* const slots = slot(s, s.rank(), scatter_hop, chunk, 0);
    Pack* to[kOthers] = {};
    WEFT_UNROLL
    for (std::uint32_t k = 0; k < kOthers; ++k) {
      if (1 + k < Instance::size(*s.call)) to[k] = slot(s, rank_in_turn(*s.call, 1 + k), gather_hop, chunk, s.rank());
    }
    const auto packs = static_cast<std::uint32_t>(output.packs()), thread = team.thread_rank(), step = team.size();
    // Reduces packs i, i + step, …: `some` at once.
    const auto reduce_some = [&]<std::uint32_t some>(std::uint32_t i) {
      Pack own[some], sum[some];
      WEFT_UNROLL
      for (std::uint32_t j = 0; j < some; ++j) own[j] = input.load(i + j * step);
      Instance::reduce_slots(team, s, p.op, slots, s.layout().pipeline_packs, i, step, own, sum);
      WEFT_UNROLL
      for (std::uint32_t j = 0; j < some; ++j) {
        output.store(i + j * step, sum[j]);
        WEFT_UNROLL
        for (std::uint32_t k = 0; k < kOthers; ++k) {
          if (1 + k < Instance::size(*s.call)) team.put(to[k] + i + j * step, sum[j]);
        }
        for (std::uint32_t next = 1 + kOthers; next < Instance::size(*s.call); ++next) {
          team.put(slot(s, rank_in_turn(*s.call, next), gather_hop, chunk, s.rank()) + i + j * step, sum[j]);
        }
      }
    };
    constexpr std::uint32_t kSums = at_once<T>(kOthers);
    std::uint32_t i = thread;
    for (; i + (kSums - 1) * step < packs; i += kSums * step) reduce_some.template operator()<kSums>(i);
    for (; i < packs; i += step) reduce_some.template operator()<1>(i);
    announce(team, s, gather_hop, chunk);
    return true;
  }

  template <Team T>
  static WEFT_FN bool gather(T& team, const Session& s, const ThreadPlan& p, std::uint32_t turn) {
    const Chunk chunk = chunk_of(s, p, turn);
    if (!await(team, s, gather_hop, chunk)) return false;
    for (std::uint32_t next = 1; next < Instance::size(*s.call); ++next) {
      const std::uint32_t owner = rank_in_turn(*s.call, next);
      const Elements to = part(p.output, p, chunk, owner);
      const Pack* const from = slot(s, s.rank(), gather_hop, chunk, owner);
      const auto packs = static_cast<std::uint32_t>(to.packs());
      const std::uint32_t done = stream<at_once<T>(1), 1>(
          team, packs, [&](std::uint32_t i, Pack(&payload)[1]) { payload[0] = team.get(from + i); },
          [&](std::uint32_t i, const Pack(&payload)[1]) { to.store(i, payload[0]); });
      for (std::uint32_t i = done + team.thread_rank(); i < packs; i += team.size()) to.store(i, team.get(from + i));
    }
    return true;
  }
};

}  // namespace weft::detail
