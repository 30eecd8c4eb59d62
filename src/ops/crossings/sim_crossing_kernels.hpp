// The production templates of crossings, instantiated for the simulator's team.
#pragma once

#include "ops/crossings/crossing_kernels.hpp"
#include "sim/run_as.hpp"

namespace weft::sim {

Kernel find_crossing_kernel(const Wanted<detail::CrossingQuery>& wanted, const RunAs& as);

}  // namespace weft::sim
