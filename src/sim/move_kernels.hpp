// The production templates of gathers and scatters, of norms, of dispatch and combine, instantiated for the simulator's
// team.
#pragma once

#include "core/operation.hpp"
#include "sim/run.hpp"

namespace weft::sim {

// Packs travel in units of 8 or 16 bytes. Instances are those for any group and any address; of sums, bf16 and i32.
// `lanes`: of a warp, for which there are fewer instances: bf16, in units of 16 bytes, norms of two ranks with a cast.
Kernel find_move_kernel(const detail::MoveOperation& operation, int atomic_bytes, bool one_thread);
Kernel find_norm_kernel(const detail::NormOperation& operation, int atomic_bytes, bool one_thread, unsigned lanes);
Kernel find_moe_kernel(const detail::MoeOperation& operation, int atomic_bytes, bool one_thread, unsigned lanes);

}  // namespace weft::sim
