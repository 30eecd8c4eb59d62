// Arguments of the kernel of all_gather_counts.
#pragma once

#include <cstdint>

#include "base/function.hpp"
#include "weft/counts.hpp"
#include "weft/types.hpp"

namespace weft::detail {

struct CountsWork {
  const std::int32_t* input;
  std::int32_t* output;
  std::int32_t* host_output;           // or null
  std::uint32_t columns, group_ranks;  // a group is this many neighbours, which have the same rows
  // Begins of the parts of an output (weft::GatheredCounts).
  std::uint32_t rows, slots, offsets, most, total, shards, shard_slots, any, every, all;
  Sharding sharding;  // of a group's rows among its ranks; with split_slots of its slot
  bool split_slots;
  Padding padding;
  std::uint32_t slot_rows;

  // Lines of a rank's numbers, two numbers in each.
  WEFT_FN std::uint32_t lines() const { return (columns + 1) / 2; }
  // The word of column `column` of a rank.
  WEFT_FN std::uint32_t place_of(std::uint32_t rank, std::uint32_t column) const {
    return all + rank * columns + column;
  }
};

// Sets the begins of the output's parts; the caller must set all other fields.
inline CountsWork counts_work(const GatheredCounts& parts) {
  const auto word = [](std::size_t at) { return static_cast<std::uint32_t>(at); };
  return {.input = nullptr,
          .output = nullptr,
          .host_output = nullptr,
          .columns = word(parts.columns),
          .group_ranks = word(parts.group_ranks),
          .rows = word(parts.rows()),
          .slots = word(parts.slots()),
          .offsets = word(parts.offsets()),
          .most = word(parts.most()),
          .total = word(parts.total()),
          .shards = word(parts.shards()),
          .shard_slots = word(parts.shard_slots()),
          .any = word(parts.any()),
          .every = word(parts.every()),
          .all = word(parts.all()),
          .sharding = Sharding::none,
          .split_slots = false,
          .padding = Padding::none,
          .slot_rows = 0};
}

}  // namespace weft::detail
