// Crossings between attention groups and all ranks, in two hops by push: a reduce-scatter and an all-gather, of which
// one is inside of each group and the other one is among all ranks. A rank sums its shard as two-shot all-reduces and
// scatters do, so the bits are those of the two calls behind each other (and of SGLang's dp_gather_partial and
// dp_reduce_scatter_tensor, sgl-project/sglang#8279, but for the order of sums, which is fixed here).
//
// Shards that fit into a slot carry their own arrival; larger ones flow in chunks (flow_crossing.hpp).
#pragma once

#include <cstdint>

#include "ops/all_reduce/all_reduce.hpp"
#include "ops/crossings/crossing_work.hpp"
#include "ops/crossings/flow_crossing.hpp"
#include "ops/moves/move_plan.hpp"

namespace weft::detail {

template <DataType type, bool aligned16>
struct Crossing : AllReduceInstance<Reduction<type, Ops::sum>, 0, aligned16> {
  using Instance = AllReduceInstance<Reduction<type, Ops::sum>, 0, aligned16>;
  using Instance::kBatch;
  using typename Instance::R;
  using typename Instance::Wire;
  using Work = CrossingWork;
  using Chunks = FlowCrossing<Reduction<type, Ops::sum, Plain>, aligned16>;
  using Handshake = detail::Handshake<0>;
  static constexpr int kPhases = 3;
  static constexpr int kMostThreads = kMoveThreads;
  static constexpr BeginScope kBeginScope = BeginScope::block;
  // A unit is a pack of payload; it takes one or two packs of the wire.
  static constexpr std::uint32_t kWirePacks = sizeof(Pack) / Wire::kPayloadBytes;

  // As in moves/push_copy.hpp.
  static WEFT_FN std::uint32_t warp_groups(const Work& work) { return work.partition.shards.warp_groups; }

  struct ThreadPlan {
    HeaderAddress header;  // in the control block
  };
  template <Team T>
  static WEFT_FN ThreadPlan thread_plan(T& team, const Call& call, const Work&) {
    ThreadPlan p{};
    Handshake::in_control(team, call, p.header);
    return p;
  }
  using Prefetched = CrossingPartition::Prefetched;
  template <Team T>
  static WEFT_FN Prefetched prefetch(T& team, const Session&, const Work& work, const ThreadPlan&) {
    return work.partition.prefetch(team);
  }

  template <int phase, Team T>
  static WEFT_FN bool run(T& team, const Session& s, const Work& work, const ThreadPlan& p,
                          const Prefetched& prefetched) {
    const auto& table = work.partition.table(team);
    if constexpr (phase == 0) {
      const auto note = [&](std::uint64_t, std::uint64_t) -> std::uint64_t {
        return team.block_rank() == 0 ? table.hash(s.size()) : 0;
      };
      if (!fits(team, s, work.partition, prefetched, note)) return false;
    }
    if (team.block_rank() == 0) {
      if constexpr (phase < 2) return Handshake::template take_part<phase>(team, s, p.header, table.noted());
      return true;
    }
    const bool one_go = work.units(table.most_rows()) * kWirePacks <= work.slot_packs;
    if constexpr (phase == 0) {
      if (one_go) send(team, s, work, table);
      clear_pads(team, s, work, table);
      return true;
    } else if constexpr (phase == 1) {
      return one_go ? reduce(team, s, work, table) : Chunks::run(team, s, work, table);
    } else {
      return !one_go || receive(team, s, work, table);
    }
  }

 private:
  // As partition_fits().
  template <Team T, class Note>
  static WEFT_FN bool fits(T& team, const Session& s, const CrossingPartition& partition, const Prefetched& prefetched,
                           Note note) {
    if (partition.prepare(team, *s.call, prefetched, note)) return true;
    if (team.block_rank() != 0 || team.thread_rank() != 0) return false;
    MisfitInfo misfit = find_misfit(partition.shards, s.rank());
    if (misfit.what == Misfit::own_rows) {
      misfit.value = static_cast<std::int64_t>(partition.own_length(partition.table(team), s.rank()));
      misfit.limit = static_cast<std::int64_t>(partition.own_rows);
    }
    report_misfit(team, id_of(s), {.code = Errc::capacity}, misfit);
    return false;
  }

  template <Team T, class Table>
  static WEFT_FN void clear_pads(T& team, const Session& s, const Work& work, const Table& table) {
    if (work.partition.shards.padding == Padding::none) return;
    const auto [first, step] = share_of(team);
    const auto clear = [&](std::uint64_t begin, std::uint64_t end) {
      const Rows<aligned16> pads = work.pads<aligned16>(begin, end);
      for (std::uint64_t i = first; i < pads.packs(); i += step) pads.put(i, Pack{});
    };
    if (!work.partition.gathers) {
      const std::uint32_t last = work.partition.group_of(s.rank()).end() - 1;
      const std::uint64_t rows = work.partition.row_in_group(table, last) + table.rows_of(last);
      return clear(rows, work.partition.own_length(table, s.rank()));
    }
    for (std::uint32_t rank = 0; rank < s.size(); ++rank) {
      clear(table.offset_of(rank) + table.rows_of(rank), table.offset_of(rank + 1));
    }
  }

  // part(): pack `k` of the wire for a unit of payload, before it is encoded. put_part() is the inverse.
  static WEFT_FN Pack part(const Pack& unit, std::uint32_t k) {
    if constexpr (kWirePacks == 1) return unit;
    return {{unit.word[2 * k], unit.word[2 * k + 1], 0, 0}};
  }
  static WEFT_FN void put_part(Pack& unit, std::uint32_t k, const Pack& part) {
    if constexpr (kWirePacks == 1) {
      unit = part;
    } else {
      unit.word[2 * k] = part.word[0];
      unit.word[2 * k + 1] = part.word[1];
    }
  }

  static WEFT_FN Pack* slot(const Session& s, std::uint32_t owner, std::uint64_t area, std::uint32_t sender) {
    const std::uint64_t packs = s.layout().two_shot_packs;
    return Instance::slot(*s.call, owner, area, packs, sender) + s.epoch % kBanks * Instance::bank_packs(*s.call, packs);
  }

  // Every owner gets this rank's part of its shard.
  template <Team T, class Table>
  static WEFT_FN void send(T& team, const Session& s, const Work& work, const Table& table) {
    const auto [first, step] = share_of(team);
    const Circle owners = work.partition.summing(s.rank());
    const std::uint64_t most = work.units(table.most_rows());
    for (std::uint32_t turn = 1; turn < owners.size; turn += kBatch) {
      Rows<aligned16> from[kBatch];
      Pack* to[kBatch] = {};
      WEFT_UNROLL
      for (std::uint32_t k = 0; k < kBatch; ++k) {
        if (turn + k >= owners.size) break;
        const std::uint32_t owner = owners.rank_in_turn(s.rank(), turn + k);
        from[k] = work.part_of<aligned16>(table, owner);
        to[k] = slot(s, owner, s.layout().scatter, s.rank());
      }
      for (std::uint64_t i = first; i < most; i += step) {
        Pack unit[kBatch];
        WEFT_UNROLL
        for (std::uint32_t k = 0; k < kBatch; ++k) unit[k] = from[k].load(i);
        WEFT_UNROLL
        for (std::uint32_t k = 0; k < kBatch; ++k) {
          if (i < from[k].packs()) put_unit(team, s, to[k] + i * kWirePacks, unit[k]);
        }
      }
    }
  }
  template <Team T>
  static WEFT_FN void put_unit(T& team, const Session& s, Pack* to, const Pack& unit) {
    WEFT_UNROLL
    for (std::uint32_t w = 0; w < kWirePacks; ++w)
      team.store(to + w, Wire::template encode<T::kAtomicBytes>(part(unit, w), s.epoch));
  }

  // Sums this rank's shard, and sends the sums on.
  template <Team T, class Table>
  static WEFT_FN bool reduce(T& team, const Session& s, const Work& work, const Table& table) {
    const auto [first, step] = share_of(team);
    const Circle senders = work.partition.summing(s.rank()), takers = work.partition.sharing(s.rank());
    const Rows<aligned16> input = work.part_of<aligned16>(table, s.rank());
    const Rows<aligned16> output = work.place_of<aligned16>(table, s.rank());
    Pack* const slots = slot(s, s.rank(), s.layout().scatter, 0);
    for (std::uint64_t i = first; i < output.packs(); i += step) {
      const Pack own = input.get(i);
      Pack unit{};
      WEFT_UNROLL
      for (std::uint32_t w = 0; w < kWirePacks; ++w) {
        auto sum = R::start(ReduceOp::sum, senders.size);
        if (!take_sum(team, s, senders, slots + i * kWirePacks + w, part(own, w), sum)) return false;
        put_part(unit, w, R::finish(sum));
      }
      for (std::uint32_t turn = 1; turn < takers.size; ++turn) {
        const std::uint32_t taker = takers.rank_in_turn(s.rank(), turn);
        put_unit(team, s, slot(s, taker, s.layout().gather, s.rank()) + i * kWirePacks, unit);
      }
      output.put(i, unit);
    }
    return true;
  }
  // The senders' packs and this rank's own, in rank order. Packs that were read are put back to rest.
  template <Team T>
  static WEFT_FN bool take_sum(T& team, const Session& s, const Circle& senders, Pack* slots, const Pack& own,
                               typename R::Accumulator& sum) {
    const std::uint64_t packs = s.layout().two_shot_packs;
    for (std::uint32_t first = senders.first; first < senders.end(); first += kBatch) {
      const auto expected = [&](std::uint32_t k) { return first + k < senders.end() && first + k != s.rank(); };
      Pack received[kBatch];
      Pack* const batch = slots + first * packs;
      if (!Instance::receive(team, s, 1, batch, packs, first, expected, received)) return false;
      WEFT_UNROLL
      for (std::uint32_t k = 0; k < kBatch; ++k) {
        if (first + k >= senders.end()) break;
        const Pack payload = expected(k) ? Wire::decode(received[k]) : own;
        if (first + k == senders.first) {
          R::begin(sum, payload);
        } else {
          R::add(sum, payload);
        }
      }
      WEFT_UNROLL
      for (std::uint32_t k = 0; k < kBatch; ++k) {
        if (expected(k)) team.store(batch + k * packs, kRestPack);
      }
    }
    return true;
  }

  // Takes the sums of the other owners' shards.
  template <Team T, class Table>
  static WEFT_FN bool receive(T& team, const Session& s, const Work& work, const Table& table) {
    const auto [start, step] = share_of(team);
    const Circle owners = work.partition.sharing(s.rank());
    const std::uint64_t packs = s.layout().two_shot_packs, most = work.units(table.most_rows());
    for (std::uint32_t first = owners.first; first < owners.end(); first += kBatch) {
      Rows<aligned16> to[kBatch];
      WEFT_UNROLL
      for (std::uint32_t k = 0; k < kBatch; ++k) {
        if (first + k < owners.end()) to[k] = work.place_of<aligned16>(table, first + k);
      }
      Pack* const slots = slot(s, s.rank(), s.layout().gather, first);
      for (std::uint64_t i = start; i < most; i += step) {
        const auto expected = [&](std::uint32_t k) {
          return first + k < owners.end() && first + k != s.rank() && i < to[k].packs();
        };
        Pack unit[kBatch] = {};
        WEFT_UNROLL
        for (std::uint32_t w = 0; w < kWirePacks; ++w) {
          Pack received[kBatch];
          Pack* const batch = slots + i * kWirePacks + w;
          if (!Instance::receive(team, s, 2, batch, packs, first, expected, received)) return false;
          WEFT_UNROLL
          for (std::uint32_t k = 0; k < kBatch; ++k) {
            if (!expected(k)) continue;
            put_part(unit[k], w, Wire::decode(received[k]));
            team.store(batch + k * packs, kRestPack);
          }
        }
        WEFT_UNROLL
        for (std::uint32_t k = 0; k < kBatch; ++k) {
          if (expected(k)) to[k].put(i, unit[k]);
        }
      }
    }
    return true;
  }
};

}  // namespace weft::detail
