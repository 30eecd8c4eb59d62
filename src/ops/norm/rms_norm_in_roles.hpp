// Two-shot all-reduce with residual and norm for large messages. Some blocks move packs, the others norm rows, so that
// rows are normed while later ones travel. Movers send the shards' first packs first: rows are complete one after the
// other, and blocks that norm take them in that order.
//
// A processor has one role: a mover's stores to the link would hold up the loads of blocks that norm there.
//
// Packs' places and contents are those of two_shot_rms_norm.hpp, whatever a rank's roles. So roles, grids and this
// choice may differ from rank to rank. Nobody waits in a circle: a thread reduces a pack only after it has scattered
// that pack and those before it, and no mover waits for a block that norms.
#pragma once

#include <cstdint>

#include "ops/norm/two_shot_rms_norm.hpp"

namespace weft::detail {

template <class R, std::uint32_t known_size, bool casts>
struct RmsNormInRoles : TwoShotRmsNorm<R, known_size, casts> {
  using Base = TwoShotRmsNorm<R, known_size, casts>;
  using typename Base::Handshake;
  using typename Base::Instance;
  using typename Base::Norm;
  using typename Base::Slots;
  using typename Base::Wire;
  using Work = NormInRolesWork;
  static constexpr int kMostThreads = kMostNormThreadsInRoles;
  static constexpr BeginScope kBeginScope = BeginScope::block;
  static WEFT_FN std::uint32_t warp_groups(const Work& work) { return work.warp_groups; }

  struct ThreadPlan : Base::ThreadPlan {
    bool moves;                         // else it norms
    std::uint32_t ahead;                // of a mover: packs of a shard, from a thread's scattering to its reducing
    std::uint32_t first_row, row_step;  // of a block that norms, in the order of completion
  };
  template <Team T>
  static WEFT_FN ThreadPlan thread_plan(T& team, const Call& call, const Work& work) {
    ThreadPlan p{Base::thread_plan(team, call, work), false, 0, 0, 0};
    if (team.block_rank() == 0) return p;
    // The first processors move. Blocks of a role are counted by warp group of its processors.
    const std::uint32_t all = team.blocks() / work.warp_groups, processor = team.block_rank() % all;
    const std::uint32_t group = team.block_rank() / all, movers = work.movers, others = all - movers;
    p.moves = processor < movers;
    if (p.moves) {
      const std::uint32_t mover = group * movers + processor - 1;  // without the control block
      p.share = {.first = mover * team.size() + team.thread_rank(),
                 .end = p.shard,
                 .step = (movers * work.warp_groups - 1) * team.size()};
    } else {
      p.first_row = group * others + processor - movers;
      p.row_step = others * work.warp_groups;
    }
    const std::uint64_t ahead = std::uint64_t{work.ahead} * p.share.step;
    p.ahead = ahead < p.shard ? static_cast<std::uint32_t>(ahead) : p.shard;
    return p;
  }

  struct Prefetched {};
  template <Team T>
  static WEFT_FN Prefetched prefetch(T&, const Session&, const Work&, const ThreadPlan&) {
    return {};
  }

  template <int phase, Team T>
  static WEFT_FN bool run(T& team, const Session& s, const Work& work, const ThreadPlan& p, const Prefetched&) {
    if (team.block_rank() == 0) {
      if constexpr (phase == 0) Handshake::send(team, s, p.header);
      return phase != 1 || Handshake::compare(team, s, p.header, 1);
    }
    if constexpr (phase == 0) {
      if (p.moves) scatter_all(team, s, p);
      return true;
    } else if constexpr (phase == 1) {
      return !p.moves || team.all(move(team, s, p));
    } else {
      return p.moves || norm(team, s, work, p);
    }
  }

 private:
  // A thread's packs i of the other ranks' shards.
  struct Outgoing {
    Pack pack[known_size - 1];
  };
  static WEFT_FN bool exists(const Session& s, const ThreadPlan& p, std::uint32_t turn, std::uint32_t i) {
    return i < p.shard && Base::place(s, p, turn, i) < p.packs;
  }
  static WEFT_FN Outgoing load(const Session& s, const ThreadPlan& p, std::uint32_t i) {
    Outgoing out{};
    WEFT_UNROLL
    for (std::uint32_t k = 0; k + 1 < known_size; ++k) {
      if (exists(s, p, 1 + k, i)) out.pack[k] = p.input.load(Base::place(s, p, 1 + k, i));
    }
    return out;
  }
  static WEFT_FN Pack load_own(const Session& s, const ThreadPlan& p, std::uint32_t i) {
    return exists(s, p, 0, i) ? p.input.load(Base::place(s, p, 0, i)) : Pack{};
  }
  template <Team T>
  static WEFT_FN void scatter(T& team, const Session& s, const ThreadPlan& p, std::uint32_t i, const Outgoing& out) {
    Slots to = {};
    Instance::find_slots(*s.call, 1, s.layout().scatter, p.slot_packs, Base::bank(s, p), to);
    WEFT_UNROLL
    for (std::uint32_t k = 0; k + 1 < known_size; ++k) {
      if (exists(s, p, 1 + k, i)) team.store(to[k] + i, Wire::template encode<T::kAtomicBytes>(out.pack[k], s.epoch));
    }
  }
  // As far as movers may run ahead. Here and below a thread loads its next packs before it waits for anything.
  template <Team T>
  static WEFT_FN void scatter_all(T& team, const Session& s, const ThreadPlan& p) {
    Outgoing next = load(s, p, p.share.first);
    for (std::uint32_t i = p.share.first; i < p.ahead; i += p.share.step) {
      const Outgoing out = next;
      if (i + p.share.step < p.ahead) next = load(s, p, i + p.share.step);
      scatter(team, s, p, i, out);
    }
  }

  template <Team T>
  static WEFT_FN bool move(T& team, const Session& s, const ThreadPlan& p) {
    Outgoing next = load(s, p, p.share.first + p.ahead);
    Pack next_own = load_own(s, p, p.share.first);
    for (std::uint32_t i = p.share.first; i < p.shard; i += p.share.step) {
      scatter(team, s, p, i + p.ahead, next);
      const Pack own = next_own;
      next = load(s, p, i + p.ahead + p.share.step);
      next_own = load_own(s, p, i + p.share.step);
      if (exists(s, p, 0, i) && !Base::reduce_pack(team, s, p, i, own)) return false;
    }
    return true;
  }

  template <Team T>
  static WEFT_FN bool norm(T& team, const Session& s, const Work& work, const ThreadPlan& p) {
    const std::uint32_t size = Instance::size(*s.call), of_shard = (work.rows + size - 1) / size;
    return Norm::with_more_width(team, work, [&]<std::uint32_t held>() {
      constexpr std::uint32_t kKept = held == 4 ? 4 : 2;
      const auto weights = Norm::template first_weights<kKept>(team, work, p.first_row);
      std::uint32_t uses = 0;
      for (std::uint32_t place = p.first_row; place < of_shard * size; place += p.row_step) {
        const std::uint32_t row = place % size * of_shard + place / size, first = row * work.row_packs;
        if (row >= work.rows) continue;
        const auto take = [&](std::uint32_t, std::uint32_t i, auto& sums) {
          return Base::receive_sums(team, s, p,
                                    {.first = first + i, .end = first + work.row_packs, .step = team.size()}, sums);
        };
        if (!Norm::template finish<held>(team, work, row, weights, uses, take)) return false;
      }
      return true;
    });
  }
};

}  // namespace weft::detail
