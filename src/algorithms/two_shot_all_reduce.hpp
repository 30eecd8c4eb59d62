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
  using Instance::rank_in_turn;
  using typename Instance::Elements;
  using typename Instance::Wire;
  using Work = AllReduceWork;
  static constexpr int kPhases = 3;

  // Nothing is loaded early: which shard a thread begins with depends on its rank.
  struct Early {};
  template <Team T>
  static WEFT_FN Early early(T&, const Work&) {
    return {};
  }

  template <int phase, Team T>
  static WEFT_FN bool run(T& team, const Session& s, const Work& work, const Early&) {
    if constexpr (phase == 0) {
      scatter(team, s, work);
      return true;
    } else if constexpr (phase == 1) {
      return reduce(team, s, work);
    } else {
      return gather(team, s, work);
    }
  }

  // Rank r owns packs [r · shard, (r + 1) · shard) of the message.
  static WEFT_FN std::uint64_t shard_packs(const Elements& tensor, const Session& s) {
    return (tensor.packs() + Instance::size(s) - 1) / Instance::size(s);
  }

  template <Team T>
  static WEFT_FN void scatter(T& team, const Session& s, const Work& work) {
    if (team.block_rank() == 0) return send_headers(team, s);
    const Elements input(work.input, work.count);
    const std::uint64_t packs = input.packs();
    const std::uint64_t shard = shard_packs(input, s);
    const auto [begin, step] = share_of(team);
    for (std::uint32_t first = 1; first < Instance::size(s); first += kBatch) {
      Pack* slot[kBatch] = {};
      std::uint64_t offset[kBatch];
      WEFT_UNROLL
      for (std::uint32_t k = 0; k < kBatch; ++k) {
        if (first + k >= Instance::size(s)) {
          offset[k] = packs;  // nothing to send
          continue;
        }
        const std::uint32_t owner = rank_in_turn(s, first + k);
        slot[k] = s.slot(owner, s.layout().scatter, s.layout().two_shot_packs, s.rank());
        offset[k] = owner * shard;
      }
      for (std::uint64_t i = begin; i < shard; i += step) {
        Pack payload[kBatch];
        WEFT_UNROLL
        for (std::uint32_t k = 0; k < kBatch; ++k) {
          payload[k] = offset[k] + i < packs ? input.load(offset[k] + i) : Pack{};
        }
        WEFT_UNROLL
        for (std::uint32_t k = 0; k < kBatch; ++k) {
          if (offset[k] + i >= packs) continue;
          team.store(slot[k] + i, Wire::template encode<T::kAtomicBytes>(payload[k], s.epoch));
        }
      }
    }
  }

  template <Team T>
  static WEFT_FN bool reduce(T& team, const Session& s, const Work& work) {
    // Not in the last phase: a CPU rank comes to that one only when all data of this one have arrived.
    if (team.block_rank() == 0) return compare_headers(team, s, 1);
    const Elements input(work.input, work.count);
    const Elements output(work.output, work.count);
    const std::uint64_t packs = output.packs();
    const std::uint64_t shard = shard_packs(output, s);
    const std::uint64_t slot_packs = s.layout().two_shot_packs;
    const std::uint64_t mine = s.rank() * shard;
    Pack* const slots = s.slot(s.rank(), s.layout().scatter, slot_packs, 0);
    const auto [begin, step] = share_of(team);
    for (std::uint64_t i = begin; i < shard && mine + i < packs; i += step) {
      const Pack own = input.load(mine + i);
      typename R::Accumulator sum{};
      if (!Instance::template receive_and_reduce<false>(team, s, 1, slots + i, slot_packs, own, sum)) return false;
      const Pack payload = R::finish(sum);
      const Pack wire = Wire::template encode<T::kAtomicBytes>(payload, s.epoch);
      for (std::uint32_t first = 1; first < Instance::size(s); first += kBatch) {
        WEFT_UNROLL
        for (std::uint32_t k = 0; k < kBatch; ++k) {
          if (first + k >= Instance::size(s)) break;
          team.store(s.slot(rank_in_turn(s, first + k), s.layout().gather, slot_packs, s.rank()) + i, wire);
        }
      }
      output.store(mine + i, payload);
    }
    return true;
  }

  template <Team T>
  static WEFT_FN bool gather(T& team, const Session& s, const Work& work) {
    if (team.block_rank() == 0) return true;
    const Elements output(work.output, work.count);
    const std::uint64_t packs = output.packs();
    const std::uint64_t shard = shard_packs(output, s);
    const std::uint64_t slot_packs = s.layout().two_shot_packs;
    Pack* const slots = s.slot(s.rank(), s.layout().gather, slot_packs, 0);
    const auto [begin, step] = share_of(team);
    for (std::uint64_t i = begin; i < shard; i += step) {
      for (std::uint32_t first = 0; first < Instance::size(s); first += kBatch) {
        const auto expected = [&](std::uint32_t k) {
          const std::uint32_t owner = first + k;
          return exists(s, owner) && owner != s.rank() && owner * shard + i < packs;
        };
        Pack received[kBatch];
        Pack* const batch = slots + first * slot_packs + i;
        if (!Instance::receive(team, s, 2, batch, slot_packs, first, expected, received)) return false;
        WEFT_UNROLL
        for (std::uint32_t k = 0; k < kBatch; ++k) {
          if (!expected(k)) continue;
          output.store((first + k) * shard + i, Wire::decode(received[k]));
          team.store(batch + k * slot_packs, kRestPack);
        }
      }
    }
    return true;
  }
};

}  // namespace weft::detail
