// Crossings of few rows, in one hop as a one-shot all-reduce: every rank sends its parts of all sums to the ranks that
// need them, and each of these adds them up itself. More bytes than two hops, and half of the latency.
//
// A slot has the shards of one group, one behind the other: of the sender's group in a gather, of the receiver's in a
// scatter.
#pragma once

#include <cstdint>

#include "ops/crossings/crossing_units.hpp"

namespace weft::detail {

template <DataType type, std::uint32_t known_size, bool aligned16>
struct OneHopCrossing : CrossingUnits<type, known_size, aligned16> {
  using Units = CrossingUnits<type, known_size, aligned16>;
  using Units::kBatch;
  using Units::kWirePacks;
  using Work = CrossingWork;
  using Area = typename Units::Area;

  // Units of the group that has the most: a slot must have room for them.
  template <class Table>
  static WEFT_FN std::uint64_t most_units(const Work& work, const Table& table, std::uint32_t ranks) {
    std::uint64_t most = 0, units = 0;
    WEFT_NO_UNROLL
    for (std::uint32_t rank = 0, member = 0; rank < ranks; ++rank) {
      units += work.units(table.rows_of(rank));
      if (units > most) most = units;
      if (++member == work.partition.group_ranks) member = 0, units = 0;
    }
    return most;
  }

  // `first`: this thread's first pack of the input, if it was loaded early.
  template <Team T, class Table>
  static WEFT_FN void send(T& team, const Session& s, const Work& work, const Table& table, const Pack* first) {
    const auto [start, step] = share_of(team);
    const Circle all{0, s.size()};
    for (std::uint32_t turn = 1; turn < s.size(); turn += kBatch) {
      Shard shard[kBatch] = {};
      Pack* slot[kBatch] = {};
      WEFT_UNROLL
      for (std::uint32_t k = 0; k < kBatch; ++k) {
        if (turn + k >= s.size()) break;
        const std::uint32_t taker = all.rank_in_turn(s.rank(), turn + k);
        shard[k].owner = work.partition.group_of(work.partition.gathers ? s.rank() : taker).first;
        slot[k] = Units::slot(s, taker, area(s), s.rank());
      }
      WEFT_NO_UNROLL
      for (std::uint32_t member = 0; member < work.partition.group_ranks; ++member) {
        Rows<aligned16> from[kBatch];
        Pack* to[kBatch] = {};
        std::uint64_t most = 0;
        WEFT_UNROLL
        for (std::uint32_t k = 0; k < kBatch; ++k) {
          if (turn + k >= s.size()) break;
          from[k] = input_of(work, table, shard[k]);
          to[k] = slot[k] + shard[k].units * kWirePacks;
          if (from[k].packs() > most) most = from[k].packs();
        }
        for (std::uint64_t i = start; i < most; i += step) {
          Pack unit[kBatch];
          WEFT_UNROLL
          for (std::uint32_t k = 0; k < kBatch; ++k) {
            const bool early = first != nullptr && i == start && input_row(work, table, shard[k]) == 0;
            unit[k] = early ? *first : from[k].load(i);
          }
          WEFT_UNROLL
          for (std::uint32_t k = 0; k < kBatch; ++k) {
            if (i < from[k].packs()) Units::put_unit(team, s, to[k] + i * kWirePacks, unit[k]);
          }
        }
        WEFT_UNROLL
        for (std::uint32_t k = 0; k < kBatch; ++k) {
          if (turn + k < s.size()) next(work, table, shard[k]);
        }
      }
    }
  }

  template <Team T, class Table>
  static WEFT_FN bool receive(T& team, const Session& s, const Work& work, const Table& table) {
    const auto [start, step] = share_of(team);
    const Circle owners = work.partition.sharing(s.rank());
    Pack* const slots = Units::slot(s, s.rank(), area(s), 0);
    Shard shard{};
    WEFT_NO_UNROLL
    for (shard.owner = owners.first; shard.owner < owners.end(); next(work, table, shard)) {
      if (shard.member == work.partition.group_ranks) shard = {.owner = shard.owner};  // another group's slot
      const std::uint64_t packs = work.units(table.rows_of(shard.owner));
      if (start >= packs) continue;
      const Circle senders = work.partition.summing(shard.owner);
      const bool own = s.rank() >= senders.first && s.rank() < senders.end();
      const Rows<aligned16> from = own ? input_of(work, table, shard) : Rows<aligned16>{};
      const Rows<aligned16> to = work.rows_at<aligned16>(
          work.partition.gathers ? table.offset_of(shard.owner) : shard.row, table.rows_of(shard.owner));
      for (std::uint64_t i = start; i < packs; i += step) {
        Pack unit{};
        Pack* const parts = slots + (shard.units + i) * kWirePacks;
        if (!Units::take_sum(team, s, senders, parts, area(s).packs, from.load(i), unit)) return false;
        to.put(i, unit);
      }
    }
    return true;
  }

 private:
  static WEFT_FN Area area(const Session& s) { return {s.layout().one_shot, s.layout().one_shot_packs}; }

  // A shard of a group, and what the group has before it: ranks, rows, units.
  struct Shard {
    std::uint32_t owner, member = 0;
    std::uint64_t row = 0, units = 0;
  };
  template <class Table>
  static WEFT_FN void next(const Work& work, const Table& table, Shard& shard) {
    const std::uint64_t rows = table.rows_of(shard.owner++);
    ++shard.member;
    shard.row += rows;
    shard.units += work.units(rows);
  }
  template <class Table>
  static WEFT_FN std::uint64_t input_row(const Work& work, const Table& table, const Shard& shard) {
    return work.partition.gathers ? shard.row : table.offset_of(shard.owner);
  }
  template <class Table>
  static WEFT_FN Rows<aligned16> input_of(const Work& work, const Table& table, const Shard& shard) {
    return work.rows_from<aligned16>(input_row(work, table, shard), table.rows_of(shard.owner));
  }
};

}  // namespace weft::detail
