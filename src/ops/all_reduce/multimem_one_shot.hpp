// Multimem one-shot all-reduce: every rank loads the sum of the whole message through the switch. One hop; a message
// leaves its rank once for every rank (PyTorch's multimem_one_shot_all_reduce is of this family).
#pragma once

#include <cstdint>

#include "ops/all_reduce/multimem.hpp"

namespace weft::detail {

template <class R>
struct MultimemOneShot : MultimemAllReduce<R, false> {
  using Base = MultimemAllReduce<R, false>;
  using typename Base::Prefetched;
  using typename Base::ThreadPlan;
  using typename Base::Work;
  static constexpr int kPhases = 2;

  template <int phase, Team T>
  static WEFT_FN bool run(T& team, const Session& s, const Work&, const ThreadPlan& p, const Prefetched&) {
    if constexpr (phase == 0) return Base::send(team, s, p);
    if (team.block_rank() == 0) return Base::Handshake::compare(team, s, p.header, 1);
    return Base::each_chunk(p, [&](std::uint32_t chunk) {
      if (!Base::await(team, s, p, Base::stage_hop, chunk)) return false;
      Base::each_pack_of_chunk(team, s, p, chunk, 0, [&](std::uint64_t pack) {
        p.output.store(pack, Base::load_sum(team, s, p, Base::staged(s, p, pack)));
      });
      return true;
    });
  }
};

}  // namespace weft::detail
