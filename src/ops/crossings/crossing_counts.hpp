// A crossing's counts, as its kernel meets them: made by every thread if there are few ranks
// (ops/moves/near_counts.hpp), else by the threads of a block together.
#pragma once

#include <cstdint>

#include "ops/crossings/crossing_partition.hpp"
#include "ops/moves/near_counts.hpp"

namespace weft::detail {

// `known_size`: of the group, or 0. A word that follows from counts alone is noted: `noted(table, most)`. `most` is the
// longest share, which one thread of a block may not read from a shared table yet.
template <std::uint32_t known_size>
struct CrossingCounts {
  SaidOfAll<known_size> said;

  template <Team T>
  static WEFT_FN CrossingCounts prefetch(T&, const CrossingPartition& partition) {
    return {said_of_all<known_size>(partition.shards)};
  }
  template <Team T>
  WEFT_FN NearTable<known_size> table(T&, const CrossingPartition& partition) const {
    return {partition.shards, said};
  }
  // As partition_fits().
  template <Team T, class Noted>
  WEFT_FN bool fit(T& team, const Session& s, const CrossingPartition& partition, const NearTable<known_size>& table,
                   Noted) const {
    if (table.fits(partition.shards, said, s.rank()) && partition.own_length(table, s.rank()) <= partition.own_rows) {
      return true;
    }
    report_unfit(team, s, [&] { return partition.misfit_in(table, s.rank()); });
    return false;
  }
  template <class Noted>
  WEFT_FN std::uint64_t noted(const NearTable<known_size>& table, Noted noted) const {
    return noted(table, table.most_rows());
  }
};

template <>
struct CrossingCounts<0> {
  CrossingPartition::Prefetched own;

  template <Team T>
  static WEFT_FN CrossingCounts prefetch(T& team, const CrossingPartition& partition) {
    return {partition.prefetch(team)};
  }
  template <Team T>
  WEFT_FN CountedTable<T> table(T& team, const CrossingPartition& partition) const {
    return partition.table(team);
  }
  template <Team T, class Noted>
  WEFT_FN bool fit(T& team, const Session& s, const CrossingPartition& partition, const CountedTable<T>& table,
                   Noted noted) const {
    return partition_fits(team, s, partition, own,
                          [&](std::uint64_t most, std::uint64_t) { return noted(table, most); });
  }
  template <Team T, class Noted>
  WEFT_FN std::uint64_t noted(const CountedTable<T>& table, Noted) const {
    return table.noted();
  }
};

}  // namespace weft::detail
