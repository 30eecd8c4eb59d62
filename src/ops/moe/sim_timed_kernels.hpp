// The production templates of dispatch and combine, instantiated for the team with clocks.
#pragma once

#include <cstdint>
#include <functional>

#include "ops/moe/moe_kernels.hpp"
#include "sim/timed_team.hpp"

namespace weft::sim {

// One block's part of one launch.
using TimedKernel = std::function<void(TimedMachine& machine, std::uint32_t block, const detail::Call& call)>;

// For bf16 rows, which are cast by slots and travel as they are by a ring.
TimedKernel find_timed_kernel(const detail::DispatchWork& work, bool ring);
TimedKernel find_timed_kernel(const detail::CombineWork& work, std::uint32_t ranks, bool ring);

}  // namespace weft::sim
