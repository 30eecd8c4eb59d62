// What the kernel of all_gather_counts is told of where its output's parts lie.
#pragma once

#include <cstdint>

#include "algorithms/push_counts.hpp"
#include "weft/counts.hpp"

namespace weft::detail {

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
          .split = Split::none,
          .split_slots = false,
          .slot = SlotKind::dense,
          .slot_rows = 0};
}

}  // namespace weft::detail
