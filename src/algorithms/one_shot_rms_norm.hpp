// One-shot all-reduce with residual and norm: as one_shot_all_reduce.hpp, but a block serves whole rows, and what it
// has summed it norms.
#pragma once

#include <cstdint>

#include "algorithms/rms_norm.hpp"

namespace weft::detail {

template <class R, std::uint32_t known_size, bool casts>
struct OneShotRmsNorm : AllReduceInstance<R, known_size, true> {
  using Instance = AllReduceInstance<R, known_size, true>;
  using Instance::kBatch;
  using Instance::kLean;
  using typename Instance::Slots;
  using typename Instance::Wire;
  using Norm = RmsNorm<R, casts>;
  using Packs = typename Norm::Packs;
  using Work = NormWork;
  using Handshake = detail::Handshake<known_size>;
  static constexpr int kMostThreads = kNormThreads;
  static constexpr Together kTogether = Together::warp;  // that adds up squares; blocks vote before they use them
  static constexpr int kPhases = 2;
  static constexpr bool kSendsToSelf = known_size > 2;  // as in one_shot_all_reduce.hpp
  static constexpr std::uint32_t kFirstTurn = kSendsToSelf ? 0 : 1;

  struct Places {
    Work work;           // a copy: as an argument of the kernel it is in no memory that a load takes long for
    HeaderPlace header;  // in the control block, which has nothing else
    Slots to;            // lean: at the ranks of turns kFirstTurn … kFirstTurn + kBatch − 1
    Pack* from;          // what rank 0 sends arrives here; rank r's, r · slot_packs further on
    std::uint64_t slot_packs, bank_packs;
  };
  template <Team T>
  static WEFT_FN Places places(T& team, const Call& call, const Work& work) {
    Places p{};
    p.work = work;
    if (team.block_rank() == 0) {
      p.header = Handshake::place(team, call);
      return p;
    }
    p.slot_packs = call.layout.one_shot_packs;
    p.bank_packs = Instance::bank_packs(call, p.slot_packs);
    p.from = Instance::slot(call, call.rank, call.layout.one_shot, p.slot_packs, 0);
    if constexpr (kLean) Instance::find_slots(call, kFirstTurn, call.layout.one_shot, p.slot_packs, 0, p.to);
    return p;
  }

  // The first pack of the first row.
  using Early = Pack;
  template <Team T>
  static WEFT_FN Early early(T& team, const Session&, const Places& p) {
    if (team.block_rank() == 0) return {};
    const std::uint32_t row = team.block_rank() - 1, i = team.thread_rank() * Norm::template run_of<T>(p.work);
    return row < p.work.rows && i < p.work.row_packs ? input(p.work, row).load(i) : Pack{};
  }

  template <int phase, Team T>
  static WEFT_FN bool run(T& team, const Session& s, const Places& p, const Early& early) {
    if constexpr (phase == 0) {
      if (team.block_rank() == 0) {
        Handshake::send(team, s, p.header);
      } else {
        send(team, s, p, early);
      }
      return true;
    } else {
      return team.block_rank() == 0 ? Handshake::compare(team, s, p.header, 1) : reduce(team, s, p, early);
    }
  }

 private:
  static WEFT_FN Packs input(const Work& work, std::uint32_t row) {
    return Packs(static_cast<const Pack*>(work.input) + row * work.input_stride, 0);
  }
  // A thread's n-th pack of a row, the row's i-th; `early` is the one that was loaded first.
  template <Team T>
  static WEFT_FN Pack load(T& team, const Work& work, std::uint32_t row, std::uint32_t n, std::uint32_t i,
                           const Early& early) {
    return n == 0 && row == team.block_rank() - 1 ? early : input(work, row).load(i);
  }

  template <Team T>
  static WEFT_FN void send(T& team, const Session& s, const Places& p, const Early& early) {
    const Work& work = p.work;
    const std::uint64_t bank = s.epoch % kBanks * p.bank_packs;
    for (std::uint32_t turn = kFirstTurn; turn < Instance::size(*s.call); turn += kBatch) {
      Slots to = {};
      if constexpr (kLean) {
        WEFT_UNROLL
        for (std::uint32_t k = 0; k < kBatch; ++k) to[k] = p.to[k];
      } else {
        Instance::find_slots(*s.call, turn, s.layout().one_shot, p.slot_packs, 0, to);
      }
      Norm::each_row(team, work, [&](std::uint32_t row) {
        Norm::each_pack(team, work, [&](std::uint32_t n, std::uint32_t i) {
          if (i >= work.row_packs) return;
          const Pack wire = Wire::template encode<T::kAtomicBytes>(load(team, work, row, n, i, early), s.epoch);
          const std::uint64_t at = bank + std::uint64_t{row} * work.row_packs + i;
          WEFT_UNROLL
          for (std::uint32_t k = 0; k < kBatch; ++k) {
            if (turn + k < Instance::size(*s.call)) team.store(to[k] + at, wire);
          }
        });
        return true;
      });
    }
  }

  template <Team T>
  static WEFT_FN bool reduce(T& team, const Session& s, const Places& p, const Early& early) {
    const Work& work = p.work;
    Pack* const from = p.from + s.epoch % kBanks * p.bank_packs;
    std::uint32_t uses = 0;
    return Norm::each_row(team, work, [&](std::uint32_t row) {
      return Norm::finish(team, work, row, uses, [&](std::uint32_t n, std::uint32_t i, Pack& result) {
        typename R::Accumulator sum{};
        Pack* const slots = from + std::uint64_t{row} * work.row_packs + i;
        const Pack own = kSendsToSelf ? Pack{} : load(team, work, row, n, i, early);
        if (!Instance::template receive_and_reduce<kSendsToSelf>(team, s, 1, slots, p.slot_packs, own, sum)) {
          return false;
        }
        result = R::finish(sum);
        return true;
      });
    });
  }
};

}  // namespace weft::detail
