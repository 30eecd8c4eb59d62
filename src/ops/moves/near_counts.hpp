// The table of counts of a few ranks, which every thread makes for itself. It stays in registers: no thread waits for
// another one, as for the table that a block shares (CountedTable), which takes a microsecond.
#pragma once

#include <cstdint>

#include "ops/moves/row_partition.hpp"

namespace weft::detail {

// The numbers of every rank, loaded together with the epoch.
template <std::uint32_t ranks>
struct SaidOfAll {
  CountedPartition::Prefetched of[ranks];
};
// A kernel is also launched without ranks and counts, to load it.
template <std::uint32_t ranks>
WEFT_FN SaidOfAll<ranks> said_of_all(const CountedPartition& partition) {
  SaidOfAll<ranks> said{};
  if (partition.ranks == 0) return said;
  WEFT_UNROLL
  for (std::uint32_t rank = 0; rank < ranks; ++rank) said.of[rank] = partition.said_of(rank);
  return said;
}

// Answers as CountedTable does.
template <std::uint32_t ranks>
class NearTable {
 public:
  NearTable() = default;  // to be assigned
  WEFT_FN NearTable(const CountedPartition& partition, const SaidOfAll<ranks>& said) {
    WEFT_UNROLL
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      rows_[rank] = partition.rows_in(said.of[rank].count, rank);
      said_slot_[rank] = partition.slot_of(rows_[rank], said.of[rank].length);
      if (rows_[rank] > most_) most_ = rows_[rank];
    }
    WEFT_UNROLL
    for (std::uint32_t rank = 0; rank < ranks; ++rank)
      slot_[rank] = partition.padding == Padding::max ? most_ : said_slot_[rank];
  }
  // Whether these numbers may be used by rank `own`; as CountedPartition::prepare().
  WEFT_FN bool fits(const CountedPartition& partition, const SaidOfAll<ranks>& said, std::uint32_t own) const {
    bool good = offset_of(ranks) <= partition.whole_rows;
    WEFT_UNROLL
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      good = good && said.of[rank].count >= 0 && said.of[rank].length >= 0 && rows_[rank] <= slot_[rank];
      if (rank == own) good = good && (partition.own_padded ? slot_[rank] : rows_[rank]) <= partition.own_rows;
    }
    return good;
  }

  WEFT_FN std::uint64_t rows_of(std::uint32_t rank) const {
    std::uint32_t rows = rows_[0];
    WEFT_UNROLL
    for (std::uint32_t k = 1; k < ranks; ++k) rows = k == rank ? rows_[k] : rows;
    return rows;
  }
  WEFT_FN std::uint64_t most_rows() const { return most_; }
  WEFT_FN std::uint64_t offset_of(std::uint32_t rank) const { return sum_of(slot_, 0, rank); }
  // The rows of ranks `first` to `end` − 1.
  WEFT_FN std::uint64_t rows_between(std::uint32_t first, std::uint32_t end) const { return sum_of(rows_, first, end); }
  WEFT_FN std::uint64_t hash(std::uint32_t) const {
    std::uint32_t hash = kHashBegin;
    WEFT_UNROLL
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      mix_into(hash, rows_[rank]);
      mix_into(hash, said_slot_[rank]);
    }
    return hash;
  }

 private:
  static WEFT_FN std::uint64_t sum_of(const std::uint32_t (&numbers)[ranks], std::uint32_t first, std::uint32_t end) {
    std::uint64_t sum = 0;
    WEFT_UNROLL
    for (std::uint32_t k = 0; k < ranks; ++k) sum += k >= first && k < end ? numbers[k] : 0;
    return sum;
  }

  std::uint32_t rows_[ranks], said_slot_[ranks], slot_[ranks], most_ = 0;
};

}  // namespace weft::detail
