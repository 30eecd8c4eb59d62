// Rows that cross between attention groups and all ranks: neighbours in groups share the tokens of their group.
#pragma once

#include <cstdint>

#include "ops/moves/replica_partition.hpp"

namespace weft::detail {

// Every rank sums a shard of its group's rows: parts come from one circle of ranks, sums go to another. They are the
// group and all ranks in a gather, the reverse in a scatter, so one kernel makes both. One side has all ranks' slots,
// as Counts place them. The other has the rows of one group, shard behind shard, without pads.
struct CrossingPartition {
  CountedPartition shards;    // of all ranks; its own_rows are room for a shard, if there is a tensor of it
  std::uint32_t group_ranks;  // neighbours that share the rows of a group: two or more
  bool gathers;
  std::uint64_t own_rows;  // room of the tensor with one group's rows

  static constexpr bool kKnown = false;
  using Prefetched = CountedPartition::Prefetched;
  template <Team T>
  WEFT_FN Prefetched prefetch(T& team) const {
    return shards.prefetch(team);
  }
  // As CountedPartition::prepare.
  template <Team T, class Note>
  WEFT_FN bool prepare(T& team, const Call& call, const Prefetched& prefetched, Note note) const {
    return shards.prepare(team, call, prefetched, note) && own_length(shards.table(team), call.rank) <= own_rows;
  }
  template <Team T>
  WEFT_FN CountedTable<T> table(T& team) const {
    return shards.table(team);
  }

  WEFT_FN Circle group_of(std::uint32_t rank) const { return detail::group_of(rank, group_ranks); }
  // The reason for which prepare() has returned false.
  template <Team T>
  WEFT_FN MisfitInfo misfit(T& team, std::uint32_t rank) const {
    return misfit_in(table(team), rank);
  }
  template <class Table>
  WEFT_FN MisfitInfo misfit_in(const Table& table, std::uint32_t rank) const {
    MisfitInfo misfit = find_misfit(shards, rank);
    if (misfit.what != Misfit::own_rows || misfit.value > misfit.limit) return misfit;
    misfit.value = static_cast<std::int64_t>(own_length(table, rank));
    misfit.limit = static_cast<std::int64_t>(own_rows);
    return misfit;
  }
  WEFT_FN Circle summing(std::uint32_t rank) const { return gathers ? group_of(rank) : Circle{0, shards.ranks}; }
  WEFT_FN Circle sharing(std::uint32_t rank) const { return gathers ? Circle{0, shards.ranks} : group_of(rank); }

  // Room of the input.
  WEFT_FN std::uint64_t input_rows() const { return gathers ? own_rows : shards.whole_rows; }
  // The row of the input at which the owner's shard begins, and that of the output.
  template <class Table>
  WEFT_FN std::uint64_t input_row(const Table& table, std::uint32_t owner) const {
    return gathers ? row_in_group(table, owner) : table.offset_of(owner);
  }
  template <class Table>
  WEFT_FN std::uint64_t output_row(const Table& table, std::uint32_t owner) const {
    return gathers ? table.offset_of(owner) : row_in_group(table, owner);
  }
  template <class Table>
  WEFT_FN std::uint64_t row_in_group(const Table& table, std::uint32_t owner) const {
    return rows_before(table, group_of(owner), owner);
  }
  // Rows of the tensor with one group's rows. A scatter's output has the pads of all of the group's slots, at its end.
  template <class Table>
  WEFT_FN std::uint64_t own_length(const Table& table, std::uint32_t rank) const {
    const Circle group = group_of(rank);
    if (gathers) return rows_before(table, group, group.end());
    return table.offset_of(group.end()) - table.offset_of(group.first);
  }
  // Calls `clear(begin, end)` for all rows of the output that are pads.
  template <class Table, class Clear>
  WEFT_FN void each_pads(const Table& table, std::uint32_t self, Clear clear) const {
    if (shards.padding == Padding::none) return;
    if (!gathers) {
      const Circle group = group_of(self);
      return clear(rows_before(table, group, group.end()), own_length(table, self));
    }
    for (std::uint32_t rank = 0; rank < shards.ranks; ++rank)
      clear(table.offset_of(rank) + table.rows_of(rank), table.offset_of(rank + 1));
  }
};

}  // namespace weft::detail
