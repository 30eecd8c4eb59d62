// Two-shot all-reduce: a reduce-scatter, then an all-gather, both by push with arrival in the data and no barrier
// between them. Two hops, 2 (N − 1) / N messages out of every rank: the fastest for medium messages. (SGLang's open
// "2shot_push" and FlashInfer's MNNVL kernels are of this family.)
#pragma once

#include <cstdint>

#include "algorithms/all_reduce.hpp"

namespace weft::detail {

template <class R, std::uint32_t known_size, bool whole>
struct TwoShotAllReduce : AllReduceInstance<R, known_size, whole> {
  using Instance = AllReduceInstance<R, known_size, whole>;
  using Instance::exists;
  using Instance::kBatch;
  using typename Instance::Elements;
  using typename Instance::Wire;
  using Work = AllReduceWork;
  static constexpr int kPhases = 3;
  using Handshake = detail::Handshake<known_size>;

  // What a thread sends in the first phase to the ranks of turns turn … turn + kBatch − 1.
  struct Parts {
    Elements input[kBatch];  // the thread's packs of their shards
    Pack* to[kBatch];        // the slots of these packs
  };

  // A thread's part. In every shard a data thread's packs are 0, step, 2 · step … below `packs`, counted from its
  // own first one; the last shards may be shorter, or empty.
  struct Places {
    HeaderPlace header;      // in the control block, which has nothing else
    Parts parts;             // of turns 1 … kBatch
    Elements input, output;  // of the shard that this rank reduces
    std::uint64_t packs, step;
    Pack* from;  // what rank 0 sends arrives here; rank r's, r · slot_packs further on
    std::uint64_t slot_packs, bank_packs;
    std::uint64_t to_gather;     // from a slot of the first phase to the same slot of the second
    std::uint64_t first, shard;  // the thread's first pack of each shard; the packs of a shard
  };
  template <Team T>
  static WEFT_FN Places places(T& team, const Call& call, const Work& work) {
    Places p{};
    if (team.block_rank() == 0) {
      p.header = Handshake::place(team, call);
      return p;
    }
    const auto [first, step] = share_of(team);
    const Elements input(work.input, work.count), output(work.output, work.count);
    const std::uint64_t slot_packs = call.layout.two_shot_packs;
    // Rank r owns packs [r · shard, (r + 1) · shard) of the message.
    const std::uint64_t shard = (input.packs() + Instance::size(call) - 1) / Instance::size(call);
    p = {.header = {},
         .parts = {},
         .input = {},
         .output = {},
         .packs = first < shard ? shard - first : 0,
         .step = step,
         .from = Instance::slot(call, call.rank, call.layout.scatter, slot_packs, 0) + first,
         .slot_packs = slot_packs,
         .bank_packs = Instance::bank_packs(call, slot_packs),
         .to_gather = (call.layout.gather - call.layout.scatter) / sizeof(Pack),
         .first = first,
         .shard = shard};
    p.input = input.from(call.rank * shard + first).first(p.packs);
    p.output = output.from(call.rank * shard + first).first(p.packs);
    find_parts(call, 1, work, p, p.parts);
    WEFT_UNROLL
    for (std::uint32_t k = 0; k < kBatch; ++k) {
      team.settle(p.parts.to[k]);
      p.parts.input[k].settle(team);
    }
    team.settle(p.from);
    team.settle(p.packs);
    team.settle(p.step);
    team.settle(p.bank_packs);
    p.input.settle(team);
    p.output.settle(team);
    return p;
  }

  static WEFT_FN void find_parts(const Call& call, std::uint32_t turn, const Work& work, const Places& p,
                                 Parts& parts) {
    const Elements input(work.input, work.count);
    WEFT_UNROLL
    for (std::uint32_t k = 0; k < kBatch; ++k) {
      parts.input[k] = Elements(work.input, 0);
      if (turn + k >= Instance::size(call)) continue;
      const std::uint32_t owner = Instance::rank_in_turn(call, turn + k);
      parts.input[k] = input.from(owner * p.shard + p.first).first(p.packs);
      parts.to[k] = Instance::slot(call, owner, call.layout.scatter, p.slot_packs, call.rank) + p.first;
    }
  }

  // The first packs that are sent.
  struct Early {
    Pack payload[kBatch];
  };
  template <Team T>
  static WEFT_FN Early early(T&, const Places& p) {
    Early early{};
    load(p.parts, 0, early.payload);
    return early;
  }
  static WEFT_FN void load(const Parts& parts, std::uint64_t i, Pack (&payload)[kBatch]) {
    WEFT_UNROLL
    for (std::uint32_t k = 0; k < kBatch; ++k) {
      payload[k] = i < parts.input[k].packs() ? parts.input[k].load(i) : Pack{};
    }
  }

  template <int phase, Team T>
  static WEFT_FN bool run(T& team, const Session& s, const Work& work, const Places& p, const Early& early) {
    if (team.block_rank() == 0) {
      if constexpr (phase == 0) Handshake::send(team, s, p.header);
      // Not in the last phase: a CPU rank comes to that one only when all data of this one have arrived.
      return phase != 1 || Handshake::compare(team, s, p.header, 1);
    }
    if constexpr (phase == 0) {
      scatter(team, s, work, p, early);
      return true;
    } else {
      return phase == 1 ? reduce(team, s, work, p) : gather(team, s, work, p);
    }
  }

  template <Team T>
  static WEFT_FN void scatter(T& team, const Session& s, const Work& work, const Places& p, const Early& early) {
    const std::uint64_t bank = s.epoch % kBanks * p.bank_packs;
    for (std::uint32_t turn = 1; turn < Instance::size(*s.call); turn += kBatch) {
      Parts parts = p.parts;
      if (turn != 1) find_parts(*s.call, turn, work, p, parts);
      for (std::uint64_t i = 0; i < p.packs; i += p.step) {
        Pack payload[kBatch];
        if (i == 0 && turn == 1) {
          WEFT_UNROLL
          for (std::uint32_t k = 0; k < kBatch; ++k) payload[k] = early.payload[k];
        } else {
          load(parts, i, payload);
        }
        WEFT_UNROLL
        for (std::uint32_t k = 0; k < kBatch; ++k) {
          if (i >= parts.input[k].packs()) continue;
          team.store(parts.to[k] + bank + i, Wire::template encode<T::kAtomicBytes>(payload[k], s.epoch));
        }
      }
    }
  }

  template <Team T>
  static WEFT_FN bool reduce(T& team, const Session& s, const Work& work, const Places& p) {
    const std::uint64_t bank = s.epoch % kBanks * p.bank_packs;
    const std::uint64_t packs = p.output.packs();
    for (std::uint64_t i = 0; i < packs; i += p.step) {
      const Pack own = p.input.load(i);
      typename R::Accumulator sum{};
      if (!Instance::template receive_and_reduce<false>(team, s, 1, p.from + bank + i, p.slot_packs, own, sum)) {
        return false;
      }
      const Pack payload = R::finish(sum);
      const Pack wire = Wire::template encode<T::kAtomicBytes>(payload, s.epoch);
      for (std::uint32_t turn = 1; turn < Instance::size(*s.call); turn += kBatch) {
        Parts parts = p.parts;
        if (turn != 1) find_parts(*s.call, turn, work, p, parts);
        WEFT_UNROLL
        for (std::uint32_t k = 0; k < kBatch; ++k) {
          if (turn + k < Instance::size(*s.call)) team.store(parts.to[k] + p.to_gather + bank + i, wire);
        }
      }
      p.output.store(i, payload);
    }
    return true;
  }

  template <Team T>
  static WEFT_FN bool gather(T& team, const Session& s, const Work& work, const Places& p) {
    const Elements output(work.output, work.count);
    const std::uint64_t packs = output.packs();
    Pack* const slots = p.from + p.to_gather + s.epoch % kBanks * p.bank_packs;
    for (std::uint64_t i = 0; i < p.packs; i += p.step) {
      for (std::uint32_t first = 0; first < Instance::size(*s.call); first += kBatch) {
        const auto place = [&](std::uint32_t k) { return (first + k) * p.shard + p.first + i; };
        const auto expected = [&](std::uint32_t k) {
          return exists(s, first + k) && first + k != s.rank() && place(k) < packs;
        };
        Pack received[kBatch];
        Pack* const batch = slots + first * p.slot_packs + i;
        if (!Instance::receive(team, s, 2, batch, p.slot_packs, first, expected, received)) return false;
        WEFT_UNROLL
        for (std::uint32_t k = 0; k < kBatch; ++k) {
          if (!expected(k)) continue;
          output.store(place(k), Wire::decode(received[k]));
          team.store(batch + k * p.slot_packs, kRestPack);
        }
      }
    }
    return true;
  }
};

}  // namespace weft::detail
