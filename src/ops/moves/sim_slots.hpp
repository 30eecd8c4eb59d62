// The places of ranks' rows in a ragged call of a program, found apart from the production code.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ops/moves/row_partition.hpp"
#include "sim/setup.hpp"

namespace weft::sim {

struct Slots {
  std::vector<std::uint64_t> rows, slots, begins;  // by rank; `begins` has one more
};
Slots slots_of(const CallSetup& spec, std::size_t ranks);

// The counts as a plan hands them on. Each operation has its own room for rows.
inline detail::CountedPartition counts_of(const CallSetup& spec, std::size_t ranks) {
  return {.counts = spec.counts.data(),
          .ranks = static_cast<std::uint32_t>(ranks),
          .sharding = spec.sharding,
          .padding = spec.padding,
          .slot_rows = kSlotRows,
          .slots = spec.slots.data(),
          .own_padded = false,
          .own_rows = 0,
          .whole_rows = 0};
}

}  // namespace weft::sim
