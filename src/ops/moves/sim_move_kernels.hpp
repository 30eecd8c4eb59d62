// The production templates of gathers and scatters, instantiated for the simulator's team.
#pragma once

#include "ops/moves/move_kernels.hpp"
#include "sim/run_as.hpp"

namespace weft::sim {

inline constexpr std::uint32_t kSlotRows = 2;  // of a fixed slot; others are aligned to as many

// Packs travel in units of 8 or 16 bytes: lines are wrong in smaller units. Sums are of bf16; in units of 16 bytes of
// f16, f32 and i32, too.
template <class Query>
Kernel find_move_kernel(const Wanted<Query>& wanted, const RunAs& as);

}  // namespace weft::sim
