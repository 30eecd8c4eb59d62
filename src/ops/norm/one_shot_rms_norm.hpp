// One-shot all-reduce with residual and norm. All blocks send, as in one_shot_all_reduce.hpp. A block receives and sums
// whole rows, and norms its sums.
#pragma once

#include <cstdint>

#include "ops/norm/rms_norm.hpp"

namespace weft::detail {

// A rank also sends to itself: other blocks may have to send the input of a row that a block norms, perhaps in its
// place. `keeps_own`: between two ranks that doubles the stores. From some size on (plan_norm) blocks then send the
// rows that they norm, and load their own packs from the input again.
template <class R, std::uint32_t known_size, bool casts, bool keeps_own, bool gamma_f32 = false>
struct OneShotRmsNorm : AllReduceInstance<R, known_size, true> {
  using Instance = AllReduceInstance<R, known_size, true>;
  using Instance::kBatch;
  using Instance::kSpecialized;
  using typename Instance::Slots;
  using typename Instance::Wire;
  using Norm = RmsNorm<R, casts, gamma_f32>;
  using Packs = typename Norm::Packs;
  using Work = NormWork;
  using Handshake = detail::Handshake<known_size>;
  static constexpr int kMostThreads = max_norm_threads(Algorithm::one_shot, known_size);
  static constexpr BeginScope kBeginScope = BeginScope::warp;  // that adds up squares; blocks vote before they use them
  static constexpr int kPhases = 2;
  static constexpr std::uint32_t kFirstTurn = keeps_own ? 1 : 0;

  struct ThreadPlan {
    HeaderAddress header;  // in the control block, which has no other places
    Rows<true> input;      // as one message
    NormShare share;       // packs of it that this thread sends, unless it keeps its own
    const void* sent;      // the first pack that this thread sends
    Slots to;              // specialized: at the ranks of turns kFirstTurn …
    Pack* from;            // rank 0's packs arrive here; rank r's, r · slot_packs further on
    std::uint64_t slot_packs, bank_packs;
  };
  template <Team T>
  static WEFT_FN ThreadPlan thread_plan(T& team, const Call& call, const Work& work) {
    ThreadPlan p{};
    if (Handshake::in_control(team, call, p.header)) return p;
    p.input = norm_input(work);
    if constexpr (keeps_own) {
      const std::uint32_t row = team.block_rank() - 1, i = team.thread_rank() * Norm::template run_of<T>(work);
      p.sent = row < work.rows && i < work.row_packs ? p.input.find(row * work.row_packs + i) : nullptr;
    } else {
      p.share = norm_share(team, work.rows * work.row_packs);
      p.sent = p.share.first < p.share.end ? p.input.find(p.share.first) : nullptr;
    }
    p.slot_packs = call.layout.one_shot_packs;
    p.bank_packs = Instance::bank_packs(call, p.slot_packs);
    p.from = Instance::slot(call, call.rank, call.layout.one_shot, p.slot_packs, 0);
    if constexpr (kSpecialized) Instance::find_slots(call, kFirstTurn, call.layout.one_shot, p.slot_packs, 0, p.to);
    return p;
  }

  struct Prefetched {
    Pack sent;  // the first pack that this thread sends
    typename Norm::Weights weights;
  };
  template <Team T>
  static WEFT_FN Prefetched prefetch(T& team, const Session&, const Work& work, const ThreadPlan& p) {
    return {.sent = Rows<true>::load_found(p.sent), .weights = Norm::weights(team, work, team.block_rank() - 1)};
  }

  template <int phase, Team T>
  static WEFT_FN bool run(T& team, const Session& s, const Work& work, const ThreadPlan& p,
                          const Prefetched& prefetched) {
    if constexpr (phase == 0) {
      if (team.block_rank() == 0) {
        Handshake::send(team, s, p.header);
      } else {
        send(team, s, work, p, prefetched);
      }
      return true;
    } else {
      if (team.block_rank() == 0) return Handshake::compare(team, s, p.header, 1);
      return reduce(team, s, work, p, prefetched);
    }
  }

 private:
  // This thread's n-th pack of a row, the row's i-th. One pack was loaded early.
  template <Team T>
  static WEFT_FN Pack load(T& team, const Work& work, std::uint32_t row, std::uint32_t n, std::uint32_t i,
                           const Prefetched& prefetched) {
    if (n == 0 && row == team.block_rank() - 1) return prefetched.sent;
    return Packs(static_cast<const Pack*>(work.input) + row * work.input_stride, 0).load(i);
  }

  template <Team T>
  static WEFT_FN void send(T& team, const Session& s, const Work& work, const ThreadPlan& p,
                           const Prefetched& prefetched) {
    const std::uint64_t bank = s.epoch % kBanks * p.bank_packs;
    // To all ranks, whatever their number, before the next pack is loaded: once this rank has its own pack, the row may
    // be overwritten.
    const auto send_pack = [&](std::uint32_t i, const Pack& payload) {
      const Pack wire = Wire::template encode<T::kAtomicBytes>(payload, s.epoch);
      for (std::uint32_t turn = kFirstTurn; turn < Instance::size(*s.call); turn += kBatch) {
        Slots to = {};
        if constexpr (kSpecialized) {
          WEFT_UNROLL
          for (std::uint32_t k = 0; k < kBatch; ++k) to[k] = p.to[k];
        } else {
          Instance::find_slots(*s.call, turn, s.layout().one_shot, p.slot_packs, 0, to);
        }
        WEFT_UNROLL
        for (std::uint32_t k = 0; k < kBatch; ++k) {
          if (turn + k < Instance::size(*s.call)) team.store(to[k] + bank + i, wire);
        }
      }
    };
    if constexpr (keeps_own) {
      Norm::with_width(team, work, [&]<std::uint32_t held>() {
        Norm::each_row(team, work, [&](std::uint32_t row) {
          Norm::template each_pack_of_row<held>(team, work, [&](std::uint32_t n, std::uint32_t i) {
            if (i < work.row_packs) send_pack(row * work.row_packs + i, load(team, work, row, n, i, prefetched));
          });
          return true;
        });
      });
    } else {
      for (std::uint32_t i = p.share.first; i < p.share.end; i += p.share.step) {
        send_pack(i, i == p.share.first ? prefetched.sent : p.input.load(i));
      }
    }
  }

  template <Team T>
  static WEFT_FN bool reduce(T& team, const Session& s, const Work& work, const ThreadPlan& p,
                             const Prefetched& prefetched) {
    Pack* const from = p.from + s.epoch % kBanks * p.bank_packs;
    return Norm::with_width(team, work, [&]<std::uint32_t held>() {
      std::uint32_t uses = 0;
      return Norm::each_row(team, work, [&](std::uint32_t row) {
        const auto take = [&](std::uint32_t n, std::uint32_t i, Pack(&result)[1]) {
          typename R::Accumulator sum{};
          const std::uint32_t pack = row * work.row_packs + i;
          const Pack own = keeps_own ? load(team, work, row, n, i, prefetched) : Pack{};
          if (!Instance::template receive_and_reduce<!keeps_own>(team, s, 1, from + pack, p.slot_packs, own, sum)) {
            return false;
          }
          result[0] = R::finish(sum);
          return true;
        };
        return Norm::template finish<held>(team, work, row, prefetched.weights, uses, take);
      });
    });
  }
};

}  // namespace weft::detail
