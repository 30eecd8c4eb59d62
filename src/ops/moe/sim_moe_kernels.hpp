// The production templates of dispatch and combine, instantiated for the simulator's team.
#pragma once

#include "ops/moe/moe_kernels.hpp"
#include "sim/run_as.hpp"

namespace weft::sim {

Kernel find_kernel(const Wanted<detail::DispatchQuery>& wanted, const RunAs& as);
Kernel find_kernel(const Wanted<detail::CombineQuery>& wanted, const RunAs& as);

}  // namespace weft::sim
