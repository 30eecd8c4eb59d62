#include "ops/moves/move_plan.hpp"

#include <algorithm>
#include <cstdint>

#include "base/units.hpp"
#include "ops/all_reduce/all_reduce_plan.hpp"
#include "protocol/detour.hpp"

namespace weft::detail {

MovePlan plan_move(const MoveQuery& query) {
  // Chunks cost round trips, and lines bytes. On H200s lines win as long as they fit into a slot (docs/notes).
  const bool cpu = query.device == Device::cpu;
  // To symmetric memory lines win up to 1.75 MiB that leave a rank: a third more bytes, but 4 µs less.
  const std::uint64_t most_symmetric = 7 * kMiB / 3 / std::max(query.size - 1, 1u);
  const std::uint64_t most_wire = (cpu ? 16 * kKiB : query.symmetric ? most_symmetric : 16 * kMiB) / sizeof(Pack);
  MovePlan plan{};
  plan.slot_packs = std::min(query.layout.two_shot_packs, most_wire);
  // Two hops also cost time, which the other links must make up for.
  plan.detour_packs = (cpu ? 32 * kKiB : 7 * kMiB / 4) / sizeof(Pack);
  const std::uint64_t sent_units = (query.sent_bytes + query.unit_bytes - 1) / query.unit_bytes;
  const bool relays_take_lines = query.size > 1 && sent_units / (query.size - 1) * query.wire_packs <= plan.slot_packs;
  plan.detour =
      query.sent_bytes != 0 && takes_detour({.ranks = query.size,
                                             .slots = query.layout.pipeline_slots,
                                             .longest = query.own_bytes / sizeof(Pack),
                                             .worth = (relays_take_lines ? 1 : kChunksWorth) * plan.detour_packs},
                                            [&] { return query.sent_bytes / sizeof(Pack); });
  // Threads for the larger of the rank's two directions: a rank without rows of its own receives its peers' rows.
  const std::uint64_t bytes = std::max(query.own_bytes, (query.whole_bytes + query.size - 1) / query.size);
  const std::uint64_t units = (bytes + query.unit_bytes - 1) / query.unit_bytes;
  const bool flows = plan.detour || units * query.wire_packs > plan.slot_packs;
  const std::uint64_t most_blocks = static_cast<std::uint64_t>(std::max(query.max_blocks - 1, 1));
  const auto blocks_of = [&](std::uint64_t threads) {
    return std::max<std::uint64_t>((units + threads - 1) / threads * query.streams, 1);
  };
  std::uint64_t threads = flows ? kMoveThreads : 64;
  while (threads < kMoveThreads && most_blocks < blocks_of(threads)) threads *= 2;
  const std::uint64_t blocks = flows ? most_blocks : std::min(blocks_of(threads), most_blocks);
  plan.threads = query.launch.threads != 0 ? query.launch.threads : static_cast<int>(threads);
  plan.blocks = query.launch.blocks != 0 ? query.launch.blocks : static_cast<int>(blocks) + 1;
  // Half of a grid sends. With more warp groups than slots each sender would have less than two: it would wait for the
  // credit of its chunk before, and all would end together (docs/notes/0056). Each rank chooses for itself.
  const int warp_groups = warp_groups_of(plan.threads);
  const bool two_slots_each = static_cast<std::uint64_t>(plan.blocks * warp_groups) <= query.layout.pipeline_slots;
  if (flows && !query.symmetric && !cpu && two_slots_each) plan.warp_groups = warp_groups;
  return plan;
}

}  // namespace weft::detail
