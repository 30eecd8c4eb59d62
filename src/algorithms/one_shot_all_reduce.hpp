// One-shot all-reduce: every rank pushes its whole message to every other, and each reduces everything. One hop, N − 1
// messages out of every rank: the fastest for small messages (TensorRT-LLM's and SGLang's push kernels do the same).
#pragma once

#include <cstdint>

#include "algorithms/all_reduce.hpp"

namespace weft::detail {

template <class R, std::uint32_t known_size, bool whole>
struct OneShotAllReduce : AllReduceInstance<R, known_size, whole> {
  using Instance = AllReduceInstance<R, known_size, whole>;
  using Instance::kBatch;
  using typename Instance::Elements;
  using typename Instance::Wire;
  using Work = AllReduceWork;
  static constexpr int kPhases = 2;
  // A pack that comes back from oneself takes fewer instructions than one that is put in its place among the others':
  // 0.15 us of 3 (four H200, 16 KB). Between two ranks this algorithm serves large messages, too, where bytes count.
  static constexpr bool kSendsToSelf = known_size > 2;
  static constexpr std::uint32_t kFirstTurn = kSendsToSelf ? 0 : 1;

  // What a thread may load before it knows its epoch: its first pack.
  using Early = Pack;
  template <Team T>
  static WEFT_FN Early early(T& team, const Work& work) {
    if (team.block_rank() == 0) return {};
    const Elements input(work.input, work.count);
    const std::uint64_t begin = share_of(team).first;
    return begin < input.packs() ? input.load(begin) : Pack{};
  }

  template <int phase, Team T>
  static WEFT_FN bool run(T& team, const Session& s, const Work& work, const Early& early) {
    if constexpr (phase == 0) {
      send(team, s, work, early);
      return true;
    }
    return reduce(team, s, work, early);
  }

  template <Team T>
  static WEFT_FN void send(T& team, const Session& s, const Work& work, const Early& early) {
    if (team.block_rank() == 0) return send_headers(team, s);
    const Elements input(work.input, work.count);
    const std::uint64_t packs = input.packs();
    const auto [begin, step] = share_of(team);
    for (std::uint32_t first = kFirstTurn; first < Instance::size(s); first += kBatch) {
      Pack* slot[kBatch] = {};
      WEFT_UNROLL
      for (std::uint32_t k = 0; k < kBatch; ++k) {
        if (first + k >= Instance::size(s)) break;
        slot[k] =
            s.slot(Instance::rank_in_turn(s, first + k), s.layout().one_shot, s.layout().one_shot_packs, s.rank());
      }
      Pack payload = early;
      for (std::uint64_t i = begin; i < packs; i += step) {
        if (i != begin) payload = input.load(i);
        const Pack wire = Wire::template encode<T::kAtomicBytes>(payload, s.epoch);
        WEFT_UNROLL
        for (std::uint32_t k = 0; k < kBatch; ++k) {
          if (first + k < Instance::size(s)) team.store(slot[k] + i, wire);
        }
      }
    }
  }

  template <Team T>
  static WEFT_FN bool reduce(T& team, const Session& s, const Work& work, const Early& early) {
    if (team.block_rank() == 0) return compare_headers(team, s, 1);
    const Elements input(work.input, work.count);
    const Elements output(work.output, work.count);
    const std::uint64_t packs = output.packs();
    const std::uint64_t slot_packs = s.layout().one_shot_packs;
    Pack* const slots = s.slot(s.rank(), s.layout().one_shot, slot_packs, 0);
    const auto [begin, step] = share_of(team);
    for (std::uint64_t i = begin; i < packs; i += step) {
      const Pack own = i == begin ? early : input.load(i);
      typename R::Accumulator sum{};
      if (!Instance::template receive_and_reduce<kSendsToSelf>(team, s, 1, slots + i, slot_packs, own, sum))
        return false;
      output.store(i, R::finish(sum));
    }
    return true;
  }
};

}  // namespace weft::detail
