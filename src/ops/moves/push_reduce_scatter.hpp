// Reduce-scatter by push: every rank sends each peer its part of the peer's shard, and each rank reduces its own shard.
// It is the first hop of the two-shot all-reduce, with the same order of sums and so the same bits.
//
// Shards that fit into a slot carry their own arrival; larger ones flow in chunks (flow_reduce.hpp).
#pragma once

#include <cstdint>

#include "numeric/rows.hpp"
#include "ops/all_reduce/all_reduce.hpp"
#include "ops/moves/flow_reduce.hpp"
#include "ops/moves/move_plan.hpp"
#include "ops/moves/row_partition.hpp"
#include "ops/moves/scatter_work.hpp"
#include "wire/parts.hpp"

namespace weft::detail {

template <class Partition, DataType type, Ops ops, std::uint32_t known_size, bool aligned16>
struct PushReduceScatter : AllReduceInstance<Reduction<type, ops>, known_size, aligned16> {
  using Instance = AllReduceInstance<Reduction<type, ops>, known_size, aligned16>;
  using Instance::kBatch;
  using typename Instance::R;
  using typename Instance::Slots;
  using typename Instance::Wire;
  using Work = ReduceScatterWork<Partition>;
  using Chunks = FlowReduce<Work, Reduction<type, ops, Plain>, known_size, aligned16>;
  using Handshake = detail::Handshake<known_size>;
  static constexpr int kPhases = 2;
  static constexpr int kMostThreads = kMoveThreads;
  // A unit is a pack of payload; it takes one or two packs of the wire.
  using Parts = WireParts<Wire>;
  static constexpr std::uint32_t kWirePacks = Parts::kWirePacks;

  // As in push_copy.hpp.
  static WEFT_FN std::uint32_t warp_groups(const Work& work) { return work.partition.warp_groups; }

  // Specialized instances find their first packs' addresses early, and do the rest while they wait for these packs.
  // Otherwise 28 KB take 0.5 us more on two H200. Counts on the device decide addresses later, so then nothing is found
  // early.
  static constexpr bool kPrefetches = Instance::kSpecialized && Partition::kKnown;

  struct ThreadPlan {
    HeaderAddress header;        // in the control block, which has no other places
    Slots to;                    // in the turns from 1 on, in bank 0
    const void* source[kBatch];  // null: no pack
  };
  template <Team T>
  static WEFT_FN ThreadPlan thread_plan(T& team, const Call& call, const Work& work) {
    ThreadPlan p{};
    if (team.block_rank() == 0) {  // by Handshake::in_control most of these kernels were other machine code
      p.header = Handshake::address(team, call);
      return p;
    }
    if constexpr (kPrefetches) {
      const std::uint64_t first = share_of(team).first;
      Instance::find_slots(call, 1, call.layout.scatter, call.layout.two_shot_packs, first, p.to);
      WEFT_UNROLL
      for (std::uint32_t k = 0; k < kBatch; ++k) {
        team.settle(p.to[k]);
        if (1 + k >= known_size) continue;
        p.source[k] = work.template part_of<aligned16>(work.partition, Instance::rank_in_turn(call, 1 + k)).find(first);
        team.settle(p.source[k]);
      }
    }
    return p;
  }

  struct Prefetched {
    typename Partition::Prefetched counts;
    Pack payload[kBatch];
  };
  template <Team T>
  static WEFT_FN Prefetched prefetch(T& team, const Session&, const Work& work, const ThreadPlan& p) {
    Prefetched prefetched{.counts = work.partition.prefetch(team), .payload = {}};
    if constexpr (kPrefetches) {
      WEFT_UNROLL
      for (std::uint32_t k = 0; k < kBatch; ++k) prefetched.payload[k] = Rows<aligned16>::load_found(p.source[k]);
    }
    return prefetched;
  }

  // As in push_copy.hpp.
  template <Team T>
  static WEFT_FN BeginScope begin_scope(const Work& work) {
    if constexpr (Partition::kKnown) {
      if (!work.partition.detour && fits_slots(work, work.units(work.partition.most_rows()))) return BeginScope::thread;
    }
    return BeginScope::block;
  }

  template <int phase, Team T>
  static WEFT_FN bool run(T& team, const Session& s, const Work& work, const ThreadPlan& p,
                          const Prefetched& prefetched) {
    const auto& table = work.partition.table(team);
    const auto note = [&](std::uint64_t most, std::uint64_t all) -> std::uint64_t {
      if (team.block_rank() == 0) return table.hash(s.size());
      return work.partition.takes_detour(s, most, all, true, [&](std::uint64_t rows) { return work.units(rows); });
    };
    if constexpr (phase == 0) {
      if (!partition_fits(team, s, work.partition, prefetched.counts, note)) return false;
    }
    if (team.block_rank() == 0) return Handshake::template take_part<phase>(team, s, p.header, table.noted());
    const std::uint64_t most = work.units(table.most_rows());
    const bool detour = (Partition::kKnown ? note(most, 0) : table.noted()) != 0;
    const bool one_go = !detour && fits_slots(work, most);
    if constexpr (phase == 0) {
      if (one_go) send(team, s, work, p, prefetched, table, most);
      if constexpr (Partition::kPadded) clear_pads(team, s, work, table);
      return true;
    } else {
      return one_go ? reduce(team, s, work, table) : Chunks::run(team, s, work, table, detour);
    }
  }

 private:
  static WEFT_FN bool fits_slots(const Work& work, std::uint64_t units) {
    return units * kWirePacks <= work.slot_packs;
  }

  template <Team T, class Table>
  static WEFT_FN void clear_pads(T& team, const Session& s, const Work& work, const Table& table) {
    const auto [first, step] = share_of(team);
    const std::uint64_t rows = table.rows_of(s.rank());
    const Rows<aligned16> pad(static_cast<std::byte*>(work.output) + rows * work.output_stride,
                              table.slot_rows_of(s.rank()) - rows, work.row_bytes, work.output_stride);
    for (std::uint64_t i = first; i < pad.packs(); i += step) pad.store(i, Pack{});
  }

  static WEFT_FN Pack* slot(const Session& s, std::uint32_t owner, std::uint32_t sender) {
    const std::uint64_t packs = s.layout().two_shot_packs;
    return Instance::slot(*s.call, owner, s.layout().scatter, packs, sender) + bank(s);
  }
  static WEFT_FN std::uint64_t bank(const Session& s) {
    return s.epoch % kBanks * Instance::bank_packs(*s.call, s.layout().two_shot_packs);
  }

  template <Team T, class Table>
  static WEFT_FN void send(T& team, const Session& s, const Work& work, const ThreadPlan& p,
                           const Prefetched& prefetched, const Table& table, std::uint64_t most) {
    const Share share = share_of(team);
    for (std::uint32_t turn = 1; turn < Instance::size(*s.call); turn += kBatch) {
      Rows<aligned16> from[kBatch];
      Slots to = {};  // this thread's first packs
      WEFT_UNROLL
      for (std::uint32_t k = 0; k < kBatch; ++k) {
        if (turn + k >= Instance::size(*s.call)) break;
        const std::uint32_t owner = Instance::rank_in_turn(*s.call, turn + k);
        from[k] = work.template part_of<aligned16>(table, owner);
        to[k] = kPrefetches ? p.to[k] + bank(s) : slot(s, owner, s.rank()) + share.first * kWirePacks;
      }
      for (std::uint64_t i = share.first; i < most; i += share.step) {
        Pack payload[kBatch];
        WEFT_UNROLL
        for (std::uint32_t k = 0; k < kBatch; ++k)
          payload[k] = kPrefetches && i == share.first ? prefetched.payload[k] : from[k].load(i);
        WEFT_UNROLL
        for (std::uint32_t k = 0; k < kBatch; ++k) {
          if (i >= from[k].packs()) continue;
          WEFT_UNROLL
          for (std::uint32_t w = 0; w < kWirePacks; ++w) {
            team.store(to[k] + (i - share.first) * kWirePacks + w,
                       Wire::template encode<T::kAtomicBytes>(Parts::part(payload[k], w), s.epoch));
          }
        }
      }
    }
  }

  template <Team T, class Table>
  static WEFT_FN bool reduce(T& team, const Session& s, const Work& work, const Table& table) {
    const auto [first, step] = share_of(team);
    const Rows<aligned16> input = work.template part_of<aligned16>(table, s.rank());
    const Rows<aligned16> output = work.template result<aligned16>(table, s.rank());
    Pack* const slots = slot(s, s.rank(), 0);
    for (std::uint64_t i = first; i < output.packs(); i += step) {
      const Pack own = input.load(i);
      Pack unit{};
      WEFT_UNROLL
      for (std::uint32_t w = 0; w < kWirePacks; ++w) {
        auto sum = R::start(work.op, Instance::size(*s.call));
        if (!Instance::template receive_and_reduce<false>(team, s, 1, slots + i * kWirePacks + w,
                                                          s.layout().two_shot_packs, Parts::part(own, w), sum)) {
          return false;
        }
        Parts::put_part(unit, w, R::finish(sum));
      }
      output.store(i, unit);
    }
    return true;
  }
};

}  // namespace weft::detail
