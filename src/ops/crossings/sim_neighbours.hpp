// The rows of groups of neighbours in a crossing of a program, found apart from the production code.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/crossings/crossing_work.hpp"
#include "ops/moves/sim_slots.hpp"

namespace weft::sim {

struct Neighbours {
  Slots slots;
  std::size_t ranks;  // of a group

  Neighbours(const CallSetup& spec, std::size_t all) : slots(slots_of(spec, all)), ranks(spec.group_ranks) {}

  std::size_t first_of(std::size_t rank) const { return rank / ranks * ranks; }
  // Rows of the ranks of its group that come before it.
  std::uint64_t rows_before(std::size_t rank) const {
    std::uint64_t rows = 0;
    for (std::size_t member = first_of(rank); member < rank; ++member) rows += slots.rows[member];
    return rows;
  }
  std::uint64_t rows_of_group(std::size_t rank) const {
    const std::size_t last = first_of(rank) + ranks - 1;
    return rows_before(last) + slots.rows[last];
  }
  std::uint64_t slots_of_group(std::size_t rank) const {
    return slots.begins[first_of(rank) + ranks] - slots.begins[first_of(rank)];
  }
  std::uint64_t all_slots() const { return slots.begins.back(); }
};

// `own_rows`: of the shard, as the plan gives it.
inline detail::CrossingPartition partition_of(const CallSetup& spec, const Neighbours& neighbours, std::size_t rank,
                                              bool gathers, std::uint64_t own_rows) {
  detail::CountedPartition shards = counts_of(spec, neighbours.slots.rows.size());
  shards.own_rows = own_rows;
  shards.whole_rows = neighbours.all_slots();
  return {.shards = shards,
          .group_ranks = spec.group_ranks,
          .gathers = gathers,
          .own_rows = gathers ? neighbours.rows_of_group(rank) : neighbours.slots_of_group(rank)};
}

}  // namespace weft::sim
