// The production templates that look for the largest numbers, instantiated for the simulator's team.
#pragma once

#include "ops/top_k/top_k_kernels.hpp"
#include "sim/run_as.hpp"

namespace weft::sim {

Kernel find_top_k_kernel(const Wanted<detail::TopKQuery>& wanted, const RunAs& as);

}  // namespace weft::sim
