// One-shot all-reduce: every rank pushes its whole message to every other, and each reduces everything. One hop, N − 1
// messages out of every rank: the fastest for small messages (TensorRT-LLM's and SGLang's push kernels do the same).
#pragma once

#include <cstdint>

#include "ops/all_reduce/all_reduce.hpp"

namespace weft::detail {

template <class R, std::uint32_t known_size, bool aligned16>
struct OneShotAllReduce : AllReduceInstance<R, known_size, aligned16> {
  using Instance = AllReduceInstance<R, known_size, aligned16>;
  using Instance::kBatch;
  using Instance::kSpecialized;
  using typename Instance::Elements;
  using typename Instance::Slots;
  using typename Instance::Wire;
  using Work = AllReduceWork;
  static constexpr int kPhases = 2;
  // A pack sent to the own rank takes fewer instructions than one inserted among the others' packs: 0.15 us of 3 (four
  // H200, 16 KB). Between two ranks this algorithm also serves large messages, for which bytes count.
  static constexpr bool kSendsToSelf = known_size > 2;
  static constexpr std::uint32_t kFirstTurn = kSendsToSelf ? 0 : 1;

  using Handshake = detail::Handshake<known_size>;

  // A thread's part. A data thread's packs are 0, step, 2 · step … below `packs`, counted from its own first pack.
  struct ThreadPlan {
    HeaderAddress header;  // in the control block, which has no other places
    Elements input, output;
    std::uint64_t packs, step;
    Slots to;    // specialized: at the ranks of turns kFirstTurn … kFirstTurn + kBatch − 1
    Pack* from;  // rank 0's packs arrive here; rank r's, r · slot_packs further on
    std::uint64_t slot_packs, bank_packs;
  };
  template <Team T>
  static WEFT_FN ThreadPlan thread_plan(T& team, const Call& call, const Work& work) {
    ThreadPlan p{};
    if (Handshake::in_control(team, call, p.header)) return p;
    const auto [first, step] = share_of(team);
    const std::uint64_t slot_packs = call.layout.one_shot_packs;
    p = {.header = {},
         .input = Elements(work.input, work.count).from(first),
         .output = Elements(work.output, work.count).from(first),
         .packs = 0,
         .step = step,
         .to = {},
         .from = Instance::slot(call, call.rank, call.layout.one_shot, slot_packs, 0) + first,
         .slot_packs = slot_packs,
         .bank_packs = Instance::bank_packs(call, slot_packs)};
    p.packs = p.input.packs();
    if constexpr (kSpecialized) {
      Instance::find_slots(call, kFirstTurn, call.layout.one_shot, slot_packs, first, p.to);
      WEFT_UNROLL
      for (std::uint32_t k = 0; k < kBatch; ++k) team.settle(p.to[k]);
    }
    team.settle(p.from);
    team.settle(p.packs);
    team.settle(p.step);
    team.settle(p.bank_packs);
    p.input.settle(team);
    p.output.settle(team);
    return p;
  }

  using Prefetched = Pack;
  template <Team T>
  static WEFT_FN Prefetched prefetch(T&, const Session&, const Work&, const ThreadPlan& p) {
    return p.packs != 0 ? p.input.load(0) : Pack{};
  }

  template <int phase, Team T>
  static WEFT_FN bool run(T& team, const Session& s, const Work& work, const ThreadPlan& p,
                          const Prefetched& prefetched) {
    if constexpr (phase == 0) {
      if (team.block_rank() == 0) {
        Handshake::send(team, s, p.header);
      } else {
        send(team, s, p, prefetched);
      }
      return true;
    } else {
      if (team.block_rank() == 0) return Handshake::compare(team, s, p.header, 1);
      return reduce(team, s, work.op, p, prefetched);
    }
  }

  template <Team T>
  static WEFT_FN void send(T& team, const Session& s, const ThreadPlan& p, const Prefetched& prefetched) {
    const std::uint64_t bank = s.epoch % kBanks * p.bank_packs;
    for (std::uint32_t turn = kFirstTurn; turn < Instance::size(*s.call); turn += kBatch) {
      Slots to = {};
      if constexpr (kSpecialized) {
        WEFT_UNROLL
        for (std::uint32_t k = 0; k < kBatch; ++k) {
          if (turn + k < Instance::size(*s.call)) to[k] = p.to[k] + bank;
        }
      } else {
        Instance::find_slots(*s.call, turn, s.layout().one_shot, p.slot_packs, share_of(team).first + bank, to);
      }
      Pack payload = prefetched;
      for (std::uint64_t i = 0; i < p.packs; i += p.step) {
        if (i != 0) payload = p.input.load(i);
        const Pack wire = Wire::template encode<T::kAtomicBytes>(payload, s.epoch);
        WEFT_UNROLL
        for (std::uint32_t k = 0; k < kBatch; ++k) {
          if (turn + k < Instance::size(*s.call)) team.store(to[k] + i, wire);
        }
      }
    }
  }

  template <Team T>
  static WEFT_FN bool reduce(T& team, const Session& s, ReduceOp op, const ThreadPlan& p,
                             const Prefetched& prefetched) {
    Pack* const from = p.from + s.epoch % kBanks * p.bank_packs;
    for (std::uint64_t i = 0; i < p.packs; i += p.step) {
      const Pack own = i == 0 ? prefetched : p.input.load(i);
      auto sum = R::start(op, Instance::size(*s.call));
      if (!Instance::template receive_and_reduce<kSendsToSelf>(team, s, 1, from + i, p.slot_packs, own, sum)) {
        return false;
      }
      p.output.store(i, R::finish(sum));
    }
    return true;
  }
};

}  // namespace weft::detail
