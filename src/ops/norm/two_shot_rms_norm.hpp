// Two-shot all-reduce with residual and norm. The message is cut into shards of packs, whatever the rows, and both hops
// are those of two_shot_all_reduce.hpp. Then every rank adds the residual to all rows, and norms them.
//
// Instead a rank could norm only its own rows and send residual and normed row. That would double the bytes of the
// second hop, to save work that takes no time beside the wire; and few rows would leave ranks idle.
#pragma once

#include <cstdint>

#include "ops/norm/rms_norm.hpp"

namespace weft::detail {

template <class R, std::uint32_t known_size, bool casts, bool gamma_f32 = false>
struct TwoShotRmsNorm : AllReduceInstance<R, known_size, true> {
  using Instance = AllReduceInstance<R, known_size, true>;
  using Instance::kBatch;
  using Instance::kSpecialized;
  using Instance::rank_in_turn;
  using typename Instance::Slots;
  using typename Instance::Wire;
  using Norm = RmsNorm<R, casts, gamma_f32>;
  using Work = NormWork;
  using Handshake = detail::Handshake<known_size>;
  static constexpr int kMostThreads = max_norm_threads(Algorithm::two_shot, known_size);
  static constexpr BeginScope kBeginScope = BeginScope::warp;  // that adds up squares; blocks vote before they use them
  static constexpr int kPhases = 3;

  // A thread's part of the two hops, of every shard; the last shards may be shorter, or empty.
  struct ThreadPlan {
    HeaderAddress header;  // in the control block, which has no other places
    Rows<true> input;      // as one message
    std::uint32_t packs;   // of the message
    std::uint32_t shard;   // rank r owns packs [r · shard, (r + 1) · shard) of it
    NormShare share;
    Pack* from;  // rank 0's scattered packs arrive here; rank r's, r · slot_packs further on
    std::uint64_t slot_packs, bank_packs;
    std::uint64_t to_gather;  // from a slot of the first hop to the same slot of the second
  };
  template <Team T>
  static WEFT_FN ThreadPlan thread_plan(T& team, const Call& call, const Work& work) {
    ThreadPlan p{};
    if (Handshake::in_control(team, call, p.header)) return p;
    p.input = norm_input(work);
    p.packs = work.rows * work.row_packs;
    p.shard = (p.packs + Instance::size(call) - 1) / Instance::size(call);
    p.share = norm_share(team, p.shard);
    p.slot_packs = call.layout.two_shot_packs;
    p.bank_packs = Instance::bank_packs(call, p.slot_packs);
    p.from = Instance::slot(call, call.rank, call.layout.scatter, p.slot_packs, 0);
    p.to_gather = (call.layout.gather - call.layout.scatter) / sizeof(Pack);
    return p;
  }

  using Prefetched = typename Norm::Weights;
  template <Team T>
  static WEFT_FN Prefetched prefetch(T& team, const Session&, const Work& work, const ThreadPlan&) {
    return Norm::weights(team, work, team.block_rank() - 1);
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
      scatter(team, s, p, p.share);
      return true;
    } else {
      return phase == 1 ? reduce(team, s, p) : norm(team, s, work, p, prefetched);
    }
  }

 protected:
  static WEFT_FN std::uint64_t bank(const Session& s, const ThreadPlan& p) { return s.epoch % kBanks * p.bank_packs; }
  // Pack i of a shard, if it exists: the shard of a turn's rank.
  static WEFT_FN std::uint32_t place(const Session& s, const ThreadPlan& p, std::uint32_t turn, std::uint32_t i) {
    return rank_in_turn(*s.call, turn) * p.shard + i;
  }

  // These packs of every other rank's shard.
  template <Team T>
  static WEFT_FN void scatter(T& team, const Session& s, const ThreadPlan& p, const NormShare& share) {
    for (std::uint32_t turn = 1; turn < Instance::size(*s.call); turn += kBatch) {
      Slots to = {};
      Instance::find_slots(*s.call, turn, s.layout().scatter, p.slot_packs, bank(s, p), to);
      for (std::uint32_t i = share.first; i < share.end; i += share.step) {
        Pack payload[kBatch];
        bool exists[kBatch];
        WEFT_UNROLL
        for (std::uint32_t k = 0; k < kBatch; ++k) {
          exists[k] = turn + k < Instance::size(*s.call) && place(s, p, turn + k, i) < p.packs;
          payload[k] = exists[k] ? p.input.load(place(s, p, turn + k, i)) : Pack{};
        }
        WEFT_UNROLL
        for (std::uint32_t k = 0; k < kBatch; ++k) {
          if (exists[k]) team.store(to[k] + i, Wire::template encode<T::kAtomicBytes>(payload[k], s.epoch));
        }
      }
    }
  }

  // A rank also sends its sums to itself, because another block may have the row. All threads of a block fail, or none:
  // a row's threads exchange values.
  template <Team T>
  static WEFT_FN bool reduce(T& team, const Session& s, const ThreadPlan& p) {
    return team.all(reduce_own(team, s, p));
  }
  template <Team T>
  static WEFT_FN bool reduce_own(T& team, const Session& s, const ThreadPlan& p) {
    for (std::uint32_t i = p.share.first; i < p.share.end && place(s, p, 0, i) < p.packs; i += p.share.step) {
      const Pack own = p.input.load(place(s, p, 0, i));
      if (!reduce_pack(team, s, p, i, own)) return false;
    }
    return true;
  }
  template <Team T>
  static WEFT_FN bool reduce_pack(T& team, const Session& s, const ThreadPlan& p, std::uint32_t i, const Pack& own) {
    typename R::Accumulator sum{};
    Pack* const slots = p.from + bank(s, p) + i;
    if (!Instance::template receive_and_reduce<false>(team, s, 1, slots, p.slot_packs, own, sum)) return false;
    const Pack wire = Wire::template encode<T::kAtomicBytes>(R::finish(sum), s.epoch);
    for (std::uint32_t turn = 0; turn < Instance::size(*s.call); turn += kBatch) {
      Slots to = {};
      Instance::find_slots(*s.call, turn, s.layout().gather, p.slot_packs, bank(s, p), to);
      WEFT_UNROLL
      for (std::uint32_t k = 0; k < kBatch; ++k) {
        if (turn + k < Instance::size(*s.call)) team.store(to[k] + i, wire);
      }
    }
    return true;
  }

  // Sums of the message's packs first, first + step, … below `end`, when all have arrived.
  template <std::uint32_t some, Team T>
  static WEFT_FN bool receive_sums(T& team, const Session& s, const ThreadPlan& p, const NormShare& share,
                                   Pack (&sums)[some]) {
    const auto exists = [&](std::uint32_t k) { return k == 0 || share.first + k * share.step < share.end; };
    std::uint32_t owner[some];
    Pack* slot[some];
    WEFT_UNROLL
    for (std::uint32_t k = 0; k < some; ++k) {
      const std::uint32_t pack = share.first + k * share.step;
      owner[k] = pack / p.shard;
      slot[k] = p.from + p.to_gather + bank(s, p) + owner[k] * p.slot_packs + (pack - owner[k] * p.shard);
    }
    Pack received[some] = {};
    const auto missing = [&](std::uint32_t k) {
      return exists(k) && !Wire::template arrived<T::kAtomicBytes>(received[k], s.epoch);
    };
    const auto arrived = [&] {
      WEFT_UNROLL
      for (std::uint32_t k = 0; k < some; ++k) {
        if (exists(k)) received[k] = team.load(slot[k]);
      }
      bool all = true;
      WEFT_UNROLL
      for (std::uint32_t k = 0; k < some; ++k) all &= !missing(k);
      return all;
    };
    // No peer is late with this rank's own sums: the block that makes them names the rank to blame.
    const auto to_blame = [&](std::uint32_t k) { return owner[k] != s.rank() ? owner[k] : kNoPeer; };
    const auto late = [&] {
      std::uint32_t rank = kNoPeer;
      WEFT_UNROLL
      for (std::uint32_t k = 0; k < some; ++k) {
        if (missing(k) && to_blame(k) != kNoPeer) rank = to_blame(k);
      }
      return rank;
    };
    if (!wait(team, s, {.phase = 2}, arrived, late)) return false;
    WEFT_UNROLL
    for (std::uint32_t k = 0; k < some; ++k) {
      if (!exists(k)) continue;
      sums[k] = Wire::decode(received[k]);
      team.store(slot[k], kRestPack);
    }
    return true;
  }

  template <Team T>
  static WEFT_FN bool norm(T& team, const Session& s, const Work& work, const ThreadPlan& p,
                           const Prefetched& weights) {
    return Norm::with_width(team, work, [&]<std::uint32_t held>() {
      std::uint32_t uses = 0;
      return Norm::each_row(team, work, [&](std::uint32_t row) {
        const auto take = [&](std::uint32_t, std::uint32_t i, Pack(&sum)[1]) {
          const std::uint32_t pack = row * work.row_packs + i;
          return receive_sums(team, s, p, {.first = pack, .end = pack + 1, .step = 1}, sum);
        };
        return Norm::template finish<held>(team, work, row, weights, uses, take);
      });
    });
  }
};

}  // namespace weft::detail
