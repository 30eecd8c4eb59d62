// The production templates of gathers and scatters, instantiated for the simulator's team.
#pragma once

#include <functional>

#include "core/operation.hpp"
#include "sim/team.hpp"

namespace weft::sim {

// One thread's part of one launch; or, where a rank is one thread, all of it.
using MoveKernel = std::function<void(Machine& machine, Place place, const detail::Call& call)>;

// Packs travel in units of 8 or 16 bytes. Instances are those for any group and any address; of sums, bf16 and i32.
MoveKernel find_move_kernel(const detail::MoveOperation& operation, int atomic_bytes, bool one_thread);

}  // namespace weft::sim
