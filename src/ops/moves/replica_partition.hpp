// Shares of neighbours that have the same rows: each rank of a group sends its own part of them.
#pragma once

#include <cstdint>

#include "ops/moves/row_partition.hpp"

namespace weft::detail {

// Ranks first … first + size − 1.
struct Circle {
  std::uint32_t first, size;

  WEFT_FN std::uint32_t end() const { return first + size; }
  // Turn 0 is this rank's own, which must be one of them.
  WEFT_FN std::uint32_t rank_in_turn(std::uint32_t self, std::uint32_t turn) const {
    return first + rank_after(self - first, turn, size);
  }
};
WEFT_FN Circle group_of(std::uint32_t rank, std::uint32_t group_ranks) {
  const std::uint32_t below = group_ranks - 1;  // groups of 2ⁿ ranks need no division
  return {rank - ((group_ranks & below) == 0 ? rank & below : rank % group_ranks), group_ranks};
}

// The rows that ranks of the circle have before `owner`. A group's rows are its ranks' shards, side by side.
template <class Table>
WEFT_FN std::uint64_t rows_before(const Table& table, const Circle& group, std::uint32_t owner) {
  if constexpr (requires { table.rows_between(group.first, owner); }) {
    return table.rows_between(group.first, owner);
  } else {
    std::uint64_t rows = 0;
    WEFT_NO_UNROLL
    for (std::uint32_t rank = group.first; rank < owner; ++rank) rows += table.rows_of(rank);
    return rows;
  }
}

// A table whose owner has the rows of its group.
template <Team T>
class ReplicaTable : public CountedTable<T> {
 public:
  WEFT_FN ReplicaTable(T& team, const Circle& group, std::uint32_t self)
      : CountedTable<T>(team), group_(group), self_(self) {}
  WEFT_FN std::uint64_t input_row(std::uint32_t) const { return rows_before(*this, group_, self_); }

 private:
  Circle group_;
  std::uint32_t self_;
};

struct ReplicaPartition : CountedPartition {
  std::uint32_t self, group_ranks;
  std::uint64_t group_rows;  // room of the tensor with the group's rows; own_rows are not used

  static constexpr bool kFirstRowKnown = false;
  template <Team T>
  WEFT_FN ReplicaTable<T> table(T& team) const {
    return {team, group_of(self, group_ranks), self};
  }
  template <Team T, class Note = NothingNoted>
  WEFT_FN bool prepare(T& team, const Call& call, const Prefetched& prefetched, Note note = {}) const {
    if (!CountedPartition::prepare(team, call, prefetched, note)) return false;
    return own_length(table(team)) <= group_rows;
  }
  template <class Table>
  WEFT_FN std::uint64_t own_length(const Table& table) const {
    const Circle group = group_of(self, group_ranks);
    return rows_before(table, group, group.end());
  }
  // As find_misfit(), of the group's rows.
  template <Team T>
  WEFT_FN MisfitInfo misfit(T& team, std::uint32_t rank) const {
    MisfitInfo misfit = find_misfit(static_cast<const CountedPartition&>(*this), rank);
    if (misfit.what != Misfit::own_rows) return misfit;
    misfit.value = static_cast<std::int64_t>(own_length(table(team)));
    misfit.limit = static_cast<std::int64_t>(group_rows);
    return misfit;
  }
};

}  // namespace weft::detail
