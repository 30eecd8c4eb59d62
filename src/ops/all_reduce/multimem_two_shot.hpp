// Multimem two-shot all-reduce: every rank loads the sum of its shard through the switch and stores it to all ranks
// through the switch. Two hops. A rank sends its message and a shard of the sum, whatever the number of ranks. All
// ranks have the same bits (PyTorch's multimem_all_reduce_ and NCCL's NVLS kernels are of this family).
#pragma once

#include <cstdint>

#include "ops/all_reduce/multimem.hpp"

namespace weft::detail {

template <class R>
struct MultimemTwoShot : MultimemAllReduce<R, true> {
  using Base = MultimemAllReduce<R, true>;
  using typename Base::Prefetched;
  using typename Base::ThreadPlan;
  using typename Base::Work;
  static constexpr int kPhases = 3;

  template <int phase, Team T>
  static WEFT_FN bool run(T& team, const Session& s, const Work&, const ThreadPlan& p, const Prefetched&) {
    if constexpr (phase == 0) return Base::send(team, s, p);
    if (team.block_rank() == 0) return phase != 1 || Base::Handshake::compare(team, s, p.header, 1);
    return Base::each_chunk(
        p, [&](std::uint32_t chunk) { return phase == 1 ? reduce(team, s, p, chunk) : gather(team, s, p, chunk); });
  }

  template <Team T>
  static WEFT_FN bool reduce(T& team, const Session& s, const ThreadPlan& p, std::uint32_t chunk) {
    if (!Base::await(team, s, p, Base::stage_hop, chunk)) return false;
    Base::each_pack_of_chunk(team, s, p, chunk, s.rank(), [&](std::uint64_t pack) {
      const Pack sum = Base::load_sum(team, s, p, Base::staged(s, p, pack));
      Base::store_all(team, s, p, Base::gathered(p, pack), sum);
      p.output.store(pack, sum);
    });
    Base::announce(team, s, p, Base::gather_hop, chunk);
    return true;
  }

  template <Team T>
  static WEFT_FN bool gather(T& team, const Session& s, const ThreadPlan& p, std::uint32_t chunk) {
    if (!Base::await(team, s, p, Base::gather_hop, chunk)) return false;
    for (std::uint32_t turn = 1; turn < s.size(); ++turn) {
      Base::each_pack_of_chunk(team, s, p, chunk, rank_before(s.rank(), turn, s.size()), [&](std::uint64_t pack) {
        p.output.store(pack, team.load(Base::pack_at(s, s.rank(), Base::gathered(p, pack))));
      });
    }
    return true;
  }
};

}  // namespace weft::detail
