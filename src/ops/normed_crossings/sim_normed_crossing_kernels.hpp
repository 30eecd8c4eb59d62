// The production templates of crossings with a norm, instantiated for the simulator's team.
#pragma once

#include "ops/normed_crossings/normed_crossing_kernels.hpp"
#include "sim/run_as.hpp"

namespace weft::sim {

Kernel find_normed_crossing_kernel(const Wanted<detail::NormedCrossingQuery>& wanted, const RunAs& as);

}  // namespace weft::sim
