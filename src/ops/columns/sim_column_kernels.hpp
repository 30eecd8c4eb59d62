// The production templates that put columns together, instantiated for the simulator's team.
#pragma once

#include "ops/columns/column_kernels.hpp"
#include "sim/run_as.hpp"

namespace weft::sim {

template <class Query>
Kernel find_column_kernel(const Wanted<Query>& wanted, const RunAs& as);

}  // namespace weft::sim
