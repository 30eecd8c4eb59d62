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
  // Ranks that a thread sends to at once: all others, if their number is known.
  static constexpr std::uint32_t kTakers = known_size != 0 ? known_size - 1 : kBatch;

  // Units of the group that has the most: a slot must have room for them.
  template <class Table>
  static WEFT_FN std::uint64_t most_units(const Work& work, const Table& table, std::uint32_t ranks) {
    std::uint64_t most = 0, units = 0;
    std::uint32_t member = 0;
    each_rank(ranks, [&](std::uint32_t rank) {
      units += work.units(table.rows_of(rank));
      if (units > most) most = units;
      if (++member == work.partition.group_ranks) member = 0, units = 0;
    });
    return most;
  }
  template <class Visit>
  static WEFT_FN void each_rank(std::uint32_t ranks, Visit visit) {
    if constexpr (known_size != 0) {
      WEFT_UNROLL
      for (std::uint32_t rank = 0; rank < known_size; ++rank) visit(rank);
    } else {
      WEFT_NO_UNROLL
      for (std::uint32_t rank = 0; rank < ranks; ++rank) visit(rank);
    }
  }

  // `first`: this thread's first pack of the input, if it was loaded early.
  template <Team T, class Table>
  static WEFT_FN void send(T& team, const Session& s, const Work& work, const Table& table, const Pack* first) {
    const auto [start, step] = units_of(team);
    const std::uint32_t size = Units::size(*s.call);
    const Circle all{0, size};
    for (std::uint32_t turn = 1; turn < size; turn += kTakers) {
      Walk walk[kTakers] = {};
      std::uint32_t end[kTakers] = {};
      Pack* slot[kTakers] = {};
      WEFT_UNROLL
      for (std::uint32_t k = 0; k < kTakers; ++k) {
        if (turn + k >= size) break;
        const std::uint32_t taker = all.rank_in_turn(s.rank(), turn + k);
        const Circle group = work.partition.group_of(work.partition.gathers ? s.rank() : taker);
        walk[k].owner = group.first;
        end[k] = group.end();
        slot[k] = Units::slot(s, taker, area(s), s.rank());
      }
      for (std::uint32_t i = start, found = 1; found != 0; i += step) {
        Pack unit[kTakers] = {};
        found = 0;
        WEFT_UNROLL
        for (std::uint32_t k = 0; k < kTakers; ++k) {
          if (!find(work, table, end[k], i, walk[k])) continue;
          found |= 1u << k;
          // The rows of a gather's group lie one behind the other, from the input's first row on.
          const bool early =
              first != nullptr && i == start && (work.partition.gathers || input_row(work, table, walk[k]) == 0);
          unit[k] = early ? *first : input_of(work, table, walk[k]).get(i - walk[k].before);
        }
        WEFT_UNROLL
        for (std::uint32_t k = 0; k < kTakers; ++k) {
          if ((found >> k & 1) != 0) Units::put_unit(team, s, slot[k] + i * kWirePacks, unit[k]);
        }
      }
    }
  }

  template <Team T, class Table>
  static WEFT_FN bool receive(T& team, const Session& s, const Work& work, const Table& table) {
    const auto [start, step] = units_of(team);
    const Circle owners = work.partition.sharing(s.rank());
    Pack* const slots = Units::slot(s, s.rank(), area(s), 0);
    Walk walk{.owner = owners.first};
    for (std::uint32_t i = start; find(work, table, owners.end(), i, walk); i += step) {
      const Circle senders = work.partition.summing(walk.owner);
      const bool own = s.rank() >= senders.first && s.rank() < senders.end();
      const Rows<aligned16> from = own ? input_of(work, table, walk) : Rows<aligned16>{};
      const Rows<aligned16> to = work.rows_at<aligned16>(
          work.partition.gathers ? table.offset_of(walk.owner) : walk.row, table.rows_of(walk.owner));
      const std::uint32_t in_shard = i - walk.before;
      Pack unit{};
      Pack* const parts = slots + (walk.units + in_shard) * kWirePacks;
      if (!Units::take_sum(team, s, senders, parts, area(s).packs, from.load(in_shard), unit)) return false;
      to.put(in_shard, unit);
    }
    return true;
  }

 private:
  static WEFT_FN Area area(const Session& s) { return {s.layout().one_shot, s.layout().one_shot_packs}; }

  // A slot's units are few, so 32 bits count those of all slots: half of the instructions.
  struct UnitShare {
    std::uint32_t first, step;
  };
  template <Team T>
  static WEFT_FN UnitShare units_of(T& team) {
    const Share share = share_of(team);
    return {static_cast<std::uint32_t>(share.first), static_cast<std::uint32_t>(share.step)};
  }

  // A thread meets the units of some groups, one shard behind the other, so all threads share in a group of small
  // shards. A walk stands at a shard, and counts what lies before it: ranks, rows and units of its group, and all
  // units.
  struct Walk {
    std::uint32_t owner, member = 0, row = 0, units = 0, before = 0;
  };
  // Goes on to the shard with unit `i` of the walk, which ends at rank `end`. False: the walk has no such unit.
  template <class Table>
  static WEFT_FN bool find(const Work& work, const Table& table, std::uint32_t end, std::uint32_t i, Walk& walk) {
    WEFT_NO_UNROLL
    while (walk.owner < end) {
      const auto rows = static_cast<std::uint32_t>(table.rows_of(walk.owner)), units = work.few_units(rows);
      if (i - walk.before < units) return true;
      ++walk.owner;
      walk.before += units;
      const bool last = ++walk.member == work.partition.group_ranks;
      walk.member = last ? 0 : walk.member;
      walk.row = last ? 0 : walk.row + rows;
      walk.units = last ? 0 : walk.units + units;
    }
    return false;
  }
  template <class Table>
  static WEFT_FN std::uint64_t input_row(const Work& work, const Table& table, const Walk& walk) {
    return work.partition.gathers ? walk.row : table.offset_of(walk.owner);
  }
  template <class Table>
  static WEFT_FN Rows<aligned16> input_of(const Work& work, const Table& table, const Walk& walk) {
    return work.rows_from<aligned16>(input_row(work, table, walk), table.rows_of(walk.owner));
  }
};

}  // namespace weft::detail
