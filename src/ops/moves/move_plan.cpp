#include "ops/moves/move_plan.hpp"

#include <algorithm>
#include <cstdint>
#include <span>

#include "base/units.hpp"
#include "comm/pairs.hpp"
#include "ops/all_reduce/all_reduce_plan.hpp"
#include "protocol/detour.hpp"

namespace weft::detail {

namespace {

// Packs on the wire of the longest message that the table's steps send in `way` or in one for smaller messages.
std::uint64_t tuned_packs(const MoveQuery& query, MoveWay way, std::uint64_t parts) {
  std::uint64_t bytes = 0;
  for (const TuningStep& step : query.table->steps)
    if (step.algorithm <= TunedAlgorithm(way)) bytes = step.up_to;
  bytes /= parts;
  return (bytes / query.unit_bytes + (bytes % query.unit_bytes != 0 ? 1 : 0)) * query.wire_packs;
}

// Chunks cost round trips, and lines bytes. On H200s lines win as long as they fit into a slot (docs/notes).
std::uint64_t slot_packs(const MoveQuery& query) {
  const bool cpu = query.device == Device::cpu;
  // To symmetric memory lines win up to 1.75 MiB that leave a rank: a third more bytes, but 4 µs less.
  const std::uint64_t most_symmetric = 7 * kMiB / 3 / std::max(query.size - 1, 1u);
  const std::uint64_t most_wire = (cpu ? 16 * kKiB : query.symmetric ? most_symmetric : 16 * kMiB) / sizeof(Pack);
  return std::min(query.layout.two_shot_packs,
                  query.table != nullptr ? tuned_packs(query, MoveWay::lines, query.group_ranks) : most_wire);
}

// Two hops also cost time, which the other links must make up for.
std::uint64_t detour_packs(const MoveQuery& query) {
  if (query.table != nullptr && query.table->detour_bytes != 0) return query.table->detour_bytes / sizeof(Pack);
  return (query.device == Device::cpu ? 32 * kKiB : 7 * kMiB / 4) / sizeof(Pack);
}

// The caller's launch, else that of the table's step, if the message goes its way.
Launch tuned_launch(const MoveQuery& query, std::uint64_t bytes, bool flows) {
  Launch launch = query.launch;
  if (query.table == nullptr) return launch;
  const std::uint64_t by = query.table_bytes != 0 ? query.table_bytes : bytes;
  const TuningStep& step = step_for(query.table->steps, by, by);
  if ((step.algorithm == TunedAlgorithm(MoveWay::chunks)) != flows) return launch;
  if (launch.blocks == 0) launch.blocks = std::min(step.blocks, query.max_blocks);
  if (launch.threads == 0) launch.threads = std::min(step.threads, kMoveThreads);
  return launch;
}

}  // namespace

// One hop saves 1 to 2 µs, which other bytes on the busiest link must not cost: on two H100 to 512 KiB, on four to 128
// KiB for each peer.
std::uint64_t one_hop_packs(const MoveQuery& query) {
  const std::uint64_t peers = std::max(query.size, 2u) - 1;
  const std::uint64_t on_gpus = peers == 1 ? 512 * kKiB : 384 * kKiB;
  const std::uint64_t most = (query.device == Device::cpu ? 16 * kKiB : on_gpus) / (peers * sizeof(Pack));
  return std::min(query.layout.one_shot_packs, query.table != nullptr ? tuned_packs(query, MoveWay::one_hop, 1) : most);
}

MoveWay move_way(const MoveQuery& query, std::uint64_t bytes, bool one_hop) {
  const auto packs_of = [&](std::uint64_t of) {
    return (of + query.unit_bytes - 1) / query.unit_bytes * query.wire_packs;
  };
  if (one_hop && packs_of(bytes) <= one_hop_packs(query)) return MoveWay::one_hop;
  const bool fits = packs_of((bytes + query.group_ranks - 1) / query.group_ranks) <= slot_packs(query);
  return fits ? MoveWay::lines : MoveWay::chunks;
}

std::vector<TuningStep> move_steps(const MoveQuery& query, bool one_hop) {
  if (query.table != nullptr) return query.table->steps;
  const auto bytes_of = [&](std::uint64_t packs) { return packs / query.wire_packs * query.unit_bytes; };
  std::vector<TuningStep> steps;
  if (one_hop) steps.push_back({.up_to = bytes_of(one_hop_packs(query)), .algorithm = MoveWay::one_hop});
  const std::uint64_t lines = bytes_of(slot_packs(query)) * query.group_ranks;
  if (steps.empty() || steps[0].up_to < lines) steps.push_back({.up_to = lines, .algorithm = MoveWay::lines});
  steps.push_back({.algorithm = MoveWay::chunks});
  return steps;
}

MovePlan plan_move(const MoveQuery& query) {
  MovePlan plan{};
  plan.slot_packs = slot_packs(query);
  plan.detour_packs = detour_packs(query);
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
  const Launch launch = tuned_launch(query, bytes, flows);
  plan.threads = launch.threads != 0 ? launch.threads : static_cast<int>(threads);
  plan.blocks = whole_pairs(launch.blocks != 0 ? launch.blocks : static_cast<int>(blocks) + 1, query.launch);
  // Half of a grid sends. With more warp groups than slots each sender would have less than two: it would wait for the
  // credit of its chunk before, and all would end together (docs/notes/0056). Each rank chooses for itself.
  const int warp_groups = warp_groups_of(plan.threads);
  const bool two_slots_each = static_cast<std::uint64_t>(plan.blocks * warp_groups) <= query.layout.pipeline_slots;
  if (flows && !query.symmetric && query.device != Device::cpu && two_slots_each) plan.warp_groups = warp_groups;
  return plan;
}

}  // namespace weft::detail
