// Two-shot all-reduce: a reduce-scatter, then an all-gather. Both push, the data itself shows that it has arrived, and
// no barrier stands between them. Two hops, 2 (N − 1) / N messages out of every rank: the fastest for medium messages.
// (SGLang's open "2shot_push" and FlashInfer's MNNVL kernels are of this family.)
#pragma once

#include <cstdint>

#include "ops/all_reduce/all_reduce.hpp"

namespace weft::detail {

template <class R, std::uint32_t known_size, bool aligned16>
struct TwoShotAllReduce : AllReduceInstance<R, known_size, aligned16> {
  using Instance = AllReduceInstance<R, known_size, aligned16>;
  using Instance::exists;
  using Instance::kBatch;
  using Instance::kSpecialized;
  using Instance::rank_in_turn;
  using typename Instance::Elements;
  using typename Instance::Slots;
  using typename Instance::Wire;
  using Work = AllReduceWork;
  static constexpr int kPhases = 3;
  using Handshake = detail::Handshake<known_size>;

  // A thread's part. In every shard a data thread's packs are first, first + step, first + 2 · step …; the last shards
  // may be shorter, or empty.
  struct ThreadPlan {
    HeaderAddress header;  // in the control block, which has no other places
    Elements input, output;
    std::uint64_t packs;  // of the message
    std::uint64_t shard;  // rank r owns packs [r · shard, (r + 1) · shard) of it
    std::uint64_t first, step;
    Slots to;    // specialized: the places of their pack `first` at the ranks of turns 1 … kBatch
    Pack* from;  // rank 0's pack `first` arrives here; rank r's, r · slot_packs further on
    std::uint64_t slot_packs, bank_packs;
    std::uint64_t to_gather;  // from a slot of the first hop to the same slot of the second
  };
  template <Team T>
  static WEFT_FN ThreadPlan thread_plan(T& team, const Call& call, const Work& work) {
    ThreadPlan p{};
    if (Handshake::in_control(team, call, p.header)) return p;
    const auto [first, step] = share_of(team);
    const std::uint64_t packs = Elements(work.input, work.count).packs(), slot_packs = call.layout.two_shot_packs;
    p = {.header = {},
         .input = Elements(work.input, work.count),
         .output = Elements(work.output, work.count),
         .packs = packs,
         .shard = (packs + Instance::size(call) - 1) / Instance::size(call),
         .first = first,
         .step = step,
         .to = {},
         .from = Instance::slot(call, call.rank, call.layout.scatter, slot_packs, 0) + first,
         .slot_packs = slot_packs,
         .bank_packs = Instance::bank_packs(call, slot_packs),
         .to_gather = (call.layout.gather - call.layout.scatter) / sizeof(Pack)};
    if constexpr (kSpecialized) {
      Instance::find_slots(call, 1, call.layout.scatter, slot_packs, first, p.to);
      WEFT_UNROLL
      for (std::uint32_t k = 0; k < kBatch; ++k) team.settle(p.to[k]);
    }
    team.settle(p.from);
    return p;
  }

  // Pack i of a shard, if it exists: the shard of a turn's rank.
  static WEFT_FN std::uint64_t place(const Session& s, const ThreadPlan& p, std::uint32_t turn, std::uint64_t i) {
    return rank_in_turn(*s.call, turn) * p.shard + i;
  }
  // The slots of pack `first` in bank 0; both hops use the slots of the same turns.
  template <Team T>
  static WEFT_FN void find_slots(const Session& s, const ThreadPlan& p, std::uint32_t turn, Slots& to) {
    if constexpr (kSpecialized) {
      WEFT_UNROLL
      for (std::uint32_t k = 0; k < kBatch; ++k) to[k] = p.to[k];
    } else {
      Instance::find_slots(*s.call, turn, s.layout().scatter, p.slot_packs, p.first, to);
    }
  }

  // The packs that are sent first.
  struct Prefetched {
    Pack payload[kSpecialized ? kBatch : 1];
  };
  template <Team T>
  static WEFT_FN Prefetched prefetch(T& team, const Session& s, const Work&, const ThreadPlan& p) {
    Prefetched prefetched{};
    if constexpr (kSpecialized) {
      if (team.block_rank() != 0 && p.first < p.shard) load(s, p, 1, p.first, prefetched.payload);
    }
    return prefetched;
  }
  static WEFT_FN void load(const Session& s, const ThreadPlan& p, std::uint32_t turn, std::uint64_t i,
                           Pack (&payload)[kBatch]) {
    WEFT_UNROLL
    for (std::uint32_t k = 0; k < kBatch; ++k) {
      const bool exists = turn + k < Instance::size(*s.call) && place(s, p, turn + k, i) < p.packs;
      payload[k] = exists ? p.input.load(place(s, p, turn + k, i)) : Pack{};
    }
  }

  template <int phase, Team T>
  static WEFT_FN bool run(T& team, const Session& s, const Work& work, const ThreadPlan& p,
                          const Prefetched& prefetched) {
    if (team.block_rank() == 0) {
      if constexpr (phase == 0) Handshake::send(team, s, p.header);
      // Not in the last phase: a CPU rank reaches that phase only when all data of this phase have arrived.
      return phase != 1 || Handshake::compare(team, s, p.header, 1);
    }
    if constexpr (phase == 0) {
      scatter(team, s, p, prefetched);
      return true;
    } else {
      return phase == 1 ? reduce(team, s, work.op, p) : gather(team, s, p);
    }
  }

  template <Team T>
  static WEFT_FN void scatter(T& team, const Session& s, const ThreadPlan& p, const Prefetched& prefetched) {
    const std::uint64_t bank = s.epoch % kBanks * p.bank_packs;
    for (std::uint32_t turn = 1; turn < Instance::size(*s.call); turn += kBatch) {
      Slots to = {};
      find_slots<T>(s, p, turn, to);
      for (std::uint64_t i = p.first; i < p.shard; i += p.step) {
        Pack payload[kBatch];
        if (kSpecialized && i == p.first) {
          WEFT_UNROLL
          for (std::uint32_t k = 0; k < kBatch; ++k) payload[k] = prefetched.payload[kSpecialized ? k : 0];
        } else {
          load(s, p, turn, i, payload);
        }
        WEFT_UNROLL
        for (std::uint32_t k = 0; k < kBatch; ++k) {
          if (turn + k >= Instance::size(*s.call) || place(s, p, turn + k, i) >= p.packs) continue;
          team.store(to[k] + bank + (i - p.first), Wire::template encode<T::kAtomicBytes>(payload[k], s.epoch));
        }
      }
    }
  }

  template <Team T>
  static WEFT_FN bool reduce(T& team, const Session& s, ReduceOp op, const ThreadPlan& p) {
    const std::uint64_t bank = s.epoch % kBanks * p.bank_packs;
    for (std::uint64_t i = p.first; i < p.shard && place(s, p, 0, i) < p.packs; i += p.step) {
      const Pack own = p.input.load(place(s, p, 0, i));
      auto sum = R::start(op, Instance::size(*s.call));
      Pack* const from = p.from + bank + (i - p.first);
      if (!Instance::template receive_and_reduce<false>(team, s, 1, from, p.slot_packs, own, sum)) return false;
      const Pack payload = R::finish(sum);
      const Pack wire = Wire::template encode<T::kAtomicBytes>(payload, s.epoch);
      for (std::uint32_t turn = 1; turn < Instance::size(*s.call); turn += kBatch) {
        Slots to = {};
        find_slots<T>(s, p, turn, to);
        WEFT_UNROLL
        for (std::uint32_t k = 0; k < kBatch; ++k) {
          if (turn + k < Instance::size(*s.call)) team.store(to[k] + p.to_gather + bank + (i - p.first), wire);
        }
      }
      p.output.store(place(s, p, 0, i), payload);
    }
    return true;
  }

  template <Team T>
  static WEFT_FN bool gather(T& team, const Session& s, const ThreadPlan& p) {
    Pack* const slots = p.from + p.to_gather + s.epoch % kBanks * p.bank_packs;
    for (std::uint64_t i = p.first; i < p.shard; i += p.step) {
      for (std::uint32_t first = 0; first < Instance::size(*s.call); first += kBatch) {
        const auto place_of = [&](std::uint32_t k) { return (first + k) * p.shard + i; };
        const auto expected = [&](std::uint32_t k) {
          return exists(s, first + k) && first + k != s.rank() && place_of(k) < p.packs;
        };
        Pack received[kBatch];
        Pack* const batch = slots + first * p.slot_packs + (i - p.first);
        if (!Instance::receive(team, s, 2, batch, p.slot_packs, first, expected, received)) return false;
        WEFT_UNROLL
        for (std::uint32_t k = 0; k < kBatch; ++k) {
          if (!expected(k)) continue;
          p.output.store(place_of(k), Wire::decode(received[k]));
          team.store(batch + k * p.slot_packs, kRestPack);
        }
      }
    }
    return true;
  }
};

}  // namespace weft::detail
