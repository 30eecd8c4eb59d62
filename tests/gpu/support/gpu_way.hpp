// The way of a gather or a scatter on GPUs. Tests of one way name it, since thresholds move and sizes stay.
#pragma once

#include <algorithm>

#include "comm/state.hpp"
#include "ops/moves/move_plan.hpp"
#include "protocol/detour.hpp"
#include "support/moves.hpp"

namespace weft::test {

enum class Way { at_once, relayed_lines, chunks, detour_in_chunks };

inline Way way_of(const Communicator& communicator, const Move& move) {
  const detail::RegionLayout& layout = communicator.world().state().layout();
  const auto size = static_cast<std::uint32_t>(communicator.size());
  std::size_t longest = 0, all = 0;
  for (const Place& place : places_of(move, communicator.size())) {
    longest = std::max(longest, place.rows * move.row_bytes(0));
    all += place.rows * move.row_bytes(0);
  }
  if (move.kind == Kind::broadcast) longest = all = move.rows * move.row_bytes(0);
  const bool copy = !reduces(move.kind);
  const std::uint64_t unit = copy ? 48 : 16, wire = copy ? 4 : 1;  // bytes, packs: bundles of lines, or bf16
  const detail::MovePlan plan = detail::plan_move({.device = Device::cuda,
                                                   .size = size,
                                                   .layout = layout,
                                                   .own_bytes = longest,
                                                   .whole_bytes = all,
                                                   .unit_bytes = unit,
                                                   .wire_packs = wire,
                                                   .streams = size});
  const std::uint64_t units = (longest + unit - 1) / unit;
  const bool lines = copy && size > 1 && units / (size - 1) * wire <= plan.slot_packs;
  const bool detour = detail::takes_detour({.ranks = size,
                                            .slots = layout.pipeline_slots,
                                            .longest = longest / sizeof(detail::Pack),
                                            .worth = (lines ? 1 : detail::kChunksWorth) * plan.detour_packs},
                                           [&] { return all / sizeof(detail::Pack); });
  if (detour) return lines ? Way::relayed_lines : Way::detour_in_chunks;
  return units * wire <= plan.slot_packs ? Way::at_once : Way::chunks;
}

}  // namespace weft::test
