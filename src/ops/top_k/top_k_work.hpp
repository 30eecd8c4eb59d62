// Arguments of a kernel that finds the largest numbers of rows.
#pragma once

#include <cstdint>

#include "base/function.hpp"
#include "base/pack.hpp"

namespace weft::detail {

inline constexpr int kTopKThreads = 512;  // of a block at most, as its registers allow

struct TopKWork {
  const void* input;
  void* values;  // or null
  std::int32_t* indices;
  std::uint64_t input_stride;  // bytes
  std::uint32_t rows, k;
  std::uint32_t first_column;  // of this rank, among all ranks'
  std::uint32_t own_columns;   // of this rank, without pads
  std::uint32_t parts;         // of a row on one rank: each has a list of its own
  std::uint32_t part_columns;  // whole packs

  // Lines of one rank's candidates.
  WEFT_FN std::uint64_t lines() const { return std::uint64_t{rows} * parts * k; }
};

// The parts of a row: few rows are divided, so that several processors look for the largest. The same on every rank.
constexpr std::uint32_t parts_of_row(std::uint64_t rows, std::uint64_t shard_columns, std::uint64_t k) {
  constexpr std::uint64_t kLeastColumns = 4096, kMostUnits = 128, kMostCandidates = 256, kMostParts = 8;
  std::uint64_t parts = 1;
  while (parts < kMostParts && 2 * parts * rows <= kMostUnits && 2 * parts * k <= kMostCandidates &&
         shard_columns >= 2 * parts * kLeastColumns) {
    parts *= 2;
  }
  return static_cast<std::uint32_t>(parts);
}
constexpr std::uint32_t columns_of_part(std::uint64_t shard_columns, std::uint32_t parts) {
  constexpr std::uint64_t kStep = sizeof(Pack);  // whole packs of any type
  return static_cast<std::uint32_t>(((shard_columns + parts - 1) / parts + kStep - 1) / kStep * kStep);
}

}  // namespace weft::detail
