// Crossings of few rows, in one hop as a one-shot all-reduce: every rank sends its parts of all sums to the ranks that
// need them, and each of these adds them up itself. More bytes than two hops, and half of the latency.
//
// A slot has the shards of one group, one behind the other: of the sender's group in a gather, of the receiver's in a
// scatter.
#pragma once

#include <cstdint>

#include "ops/crossings/crossing_units.hpp"

namespace weft::detail {

template <DataType type, bool aligned16>
struct OneHopCrossing : CrossingUnits<type, aligned16> {
  using Units = CrossingUnits<type, aligned16>;
  using Units::kBatch;
  using Units::kWirePacks;
  using Work = CrossingWork;
  using Area = typename Units::Area;

  // Units of the group that has the most: a slot must have room for them.
  template <class Table>
  static WEFT_FN std::uint64_t most_units(const Work& work, const Table& table, std::uint32_t ranks) {
    std::uint64_t most = 0;
    for (std::uint32_t first = 0; first < ranks; first += work.partition.group_ranks) {
      const std::uint64_t units = units_before(work, table, first + work.partition.group_ranks, first);
      if (units > most) most = units;
    }
    return most;
  }

  template <Team T, class Table>
  static WEFT_FN void send(T& team, const Session& s, const Work& work, const Table& table) {
    const auto [start, step] = share_of(team);
    const Circle all{0, s.size()};
    for (std::uint32_t member = 0; member < work.partition.group_ranks; ++member) {
      for (std::uint32_t turn = 1; turn < s.size(); turn += kBatch) {
        Rows<aligned16> from[kBatch];
        Pack* to[kBatch] = {};
        std::uint64_t most = 0;
        WEFT_UNROLL
        for (std::uint32_t k = 0; k < kBatch; ++k) {
          if (turn + k >= s.size()) break;
          const std::uint32_t taker = all.rank_in_turn(s.rank(), turn + k);
          const std::uint32_t owner = work.partition.group_of(work.partition.gathers ? s.rank() : taker).first + member;
          from[k] = work.part_of<aligned16>(table, owner);
          to[k] = place(s, work, table, taker, s.rank(), owner);
          if (from[k].packs() > most) most = from[k].packs();
        }
        for (std::uint64_t i = start; i < most; i += step) {
          Pack unit[kBatch];
          WEFT_UNROLL
          for (std::uint32_t k = 0; k < kBatch; ++k) unit[k] = from[k].load(i);
          WEFT_UNROLL
          for (std::uint32_t k = 0; k < kBatch; ++k) {
            if (i < from[k].packs()) Units::put_unit(team, s, to[k] + i * kWirePacks, unit[k]);
          }
        }
      }
    }
  }

  template <Team T, class Table>
  static WEFT_FN bool receive(T& team, const Session& s, const Work& work, const Table& table) {
    const auto [start, step] = share_of(team);
    const Circle owners = work.partition.sharing(s.rank());
    for (std::uint32_t owner = owners.first; owner < owners.end(); ++owner) {
      const Circle senders = work.partition.summing(owner);
      const bool own = s.rank() >= senders.first && s.rank() < senders.end();
      const Rows<aligned16> to = work.place_of<aligned16>(table, owner);
      const Rows<aligned16> from = own ? work.part_of<aligned16>(table, owner) : Rows<aligned16>{};
      Pack* const slots = place(s, work, table, s.rank(), 0, owner);
      for (std::uint64_t i = start; i < to.packs(); i += step) {
        Pack unit{};
        if (!Units::take_sum(team, s, senders, slots + i * kWirePacks, area(s).packs, from.load(i), unit)) return false;
        to.put(i, unit);
      }
    }
    return true;
  }

 private:
  static WEFT_FN Area area(const Session& s) { return {s.layout().one_shot, s.layout().one_shot_packs}; }

  // Units of the shards of ranks first … end − 1.
  template <class Table>
  static WEFT_FN std::uint64_t units_before(const Work& work, const Table& table, std::uint32_t end,
                                            std::uint32_t first) {
    std::uint64_t units = 0;
    for (std::uint32_t rank = first; rank < end; ++rank) units += work.units(table.rows_of(rank));
    return units;
  }
  // The place of the owner's shard in a sender's slot.
  template <class Table>
  static WEFT_FN Pack* place(const Session& s, const Work& work, const Table& table, std::uint32_t taker,
                             std::uint32_t sender, std::uint32_t owner) {
    const std::uint64_t before = units_before(work, table, owner, work.partition.group_of(owner).first);
    return Units::slot(s, taker, area(s), sender) + before * kWirePacks;
  }
};

}  // namespace weft::detail
