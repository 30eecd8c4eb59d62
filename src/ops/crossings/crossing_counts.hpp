// A crossing's counts, as its kernel meets them: made by every thread if there are few ranks
// (ops/moves/near_counts.hpp), else by the threads of a block together.
#pragma once

#include <cstdint>

#include "ops/crossings/crossing_partition.hpp"
#include "ops/moves/near_counts.hpp"

namespace weft::detail {

// `known_size`: of the group, or 0. Phase 0 prepares them: it makes the table, and notes a word that follows from
// counts alone, `note(table, most)`. `most` is the longest share, which one thread of a block may not read from a
// shared table yet. Later phases find both.
template <std::uint32_t known_size>
struct CrossingCounts {
  SaidOfAll<known_size> said;
  NearTable<known_size> made;
  std::uint64_t word;

  template <Team T>
  static WEFT_FN CrossingCounts prefetch(T&, const CrossingPartition& partition) {
    return {.said = said_of_all<known_size>(partition.shards), .made = {}, .word = 0};
  }
  // As partition_fits().
  template <Team T, class Note>
  WEFT_FN bool prepare(T& team, const Session& s, const CrossingPartition& partition, Note note) {
    made = {partition.shards, said};
    if (!made.fits(partition.shards, said, s.rank()) || partition.own_length(made, s.rank()) > partition.own_rows) {
      report_unfit(team, s, [&] { return partition.misfit_in(made, s.rank()); });
      return false;
    }
    word = note(made, made.most_rows());
    return true;
  }
  template <Team T>
  WEFT_FN const NearTable<known_size>& table(T&, const CrossingPartition&) const {
    return made;
  }
  template <Team T>
  WEFT_FN std::uint64_t noted(T&, const CrossingPartition&) const {
    return word;
  }
};

template <>
struct CrossingCounts<0> {
  CrossingPartition::Prefetched own;

  template <Team T>
  static WEFT_FN CrossingCounts prefetch(T& team, const CrossingPartition& partition) {
    return {partition.prefetch(team)};
  }
  template <Team T, class Note>
  WEFT_FN bool prepare(T& team, const Session& s, const CrossingPartition& partition, Note note) const {
    const CountedTable<T> counted = partition.table(team);
    return partition_fits(team, s, partition, own,
                          [&](std::uint64_t most, std::uint64_t) { return note(counted, most); });
  }
  template <Team T>
  WEFT_FN CountedTable<T> table(T& team, const CrossingPartition& partition) const {
    return partition.table(team);
  }
  template <Team T>
  WEFT_FN std::uint64_t noted(T& team, const CrossingPartition& partition) const {
    return partition.table(team).noted();
  }
};

}  // namespace weft::detail
