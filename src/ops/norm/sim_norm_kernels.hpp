// The production templates of norms, instantiated for the simulator's team.
#pragma once

#include "ops/norm/norm_kernels.hpp"
#include "sim/run_as.hpp"

namespace weft::sim {

Kernel find_kernel(const Wanted<detail::FusedNormQuery>& wanted, const RunAs& as);
Kernel find_kernel(const Wanted<detail::NormInRolesQuery>& wanted, const RunAs& as);
Kernel find_kernel(const Wanted<detail::NormRowsQuery>& wanted, const RunAs& as);

}  // namespace weft::sim
