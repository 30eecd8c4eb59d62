// One-shot all-reduce: every rank pushes its whole message to every other, and each reduces everything. One hop, N − 1
// messages out of every rank: the fastest for small messages (TensorRT-LLM's and SGLang's push kernels do the same).
#pragma once

#include <cstdint>

#include "algorithms/all_reduce.hpp"

namespace weft::detail {

// `batch`: peers handled at once in registers; any group size works with any batch.
template <class R, std::uint32_t batch>
struct OneShotAllReduce {
  using Work = AllReduceWork;
  using Wire = typename R::Wire;
  static constexpr std::uint32_t kBatch = batch;
  static constexpr int kPhases = 2;

  template <int phase, Team T>
  static WEFT_FN bool run(T& team, const Session& s, const Work& work) {
    if constexpr (phase == 0) {
      send(team, s, work);
      return true;
    }
    return reduce(team, s, work);
  }

  template <Team T>
  static WEFT_FN void send(T& team, const Session& s, const Work& work) {
    if (team.block_rank() == 0) return send_headers(team, s);
    const Tensor<typename R::Storage, R::kElements> input(work.input, work.count);
    const std::uint64_t packs = input.packs();
    const auto [begin, step] = share_of(team);
    for (std::uint32_t first = 1; first < s.size(); first += batch) {
      Pack* slot[batch];
      WEFT_UNROLL
      for (std::uint32_t k = 0; k < batch; ++k) {
        const std::uint32_t peer = (s.rank() + first + k) % s.size();
        slot[k] = s.slot(peer, s.layout().one_shot, s.layout().one_shot_packs, s.rank());
      }
      for (std::uint64_t i = begin; i < packs; i += step) {
        const Pack wire = Wire::template encode<T::kAtomicBytes>(input.load(i), s.epoch);
        WEFT_UNROLL
        for (std::uint32_t k = 0; k < batch; ++k) {
          if (first + k < s.size()) team.store(slot[k] + i, wire);
        }
      }
    }
  }

  template <Team T>
  static WEFT_FN bool reduce(T& team, const Session& s, const Work& work) {
    if (team.block_rank() == 0) return compare_headers(team, s, 1);
    const Tensor<typename R::Storage, R::kElements> input(work.input, work.count);
    const Tensor<typename R::Storage, R::kElements> output(work.output, work.count);
    const std::uint64_t packs = input.packs();
    const std::uint64_t slot_packs = s.layout().one_shot_packs;
    Pack* const slots = s.slot(s.rank(), s.layout().one_shot, slot_packs, 0);
    const auto [begin, step] = share_of(team);
    for (std::uint64_t i = begin; i < packs; i += step) {
      const Pack own = input.load(i);
      typename R::Accumulator sum;
      if (!receive_and_reduce<R, batch>(team, s, 1, slots + i, slot_packs, own, sum)) return false;
      output.store(i, R::finish(sum));
    }
    return true;
  }
};

}  // namespace weft::detail
