// The production templates of gathers and scatters, of norms, of dispatch and combine, instantiated for the simulator's
// team.
#pragma once

#include <fmt/format.h>

#include "core/operation.hpp"
#include "sim/run.hpp"
#include "weft/error.hpp"

namespace weft::sim {

// Packs travel in units of 8 or 16 bytes: lines are wrong in smaller ones. Instances are those for any group and any
// address; of sums, bf16 and i32.
// `lanes`: of a warp, for which there are fewer instances: bf16, in units of 16 bytes, norms of two ranks.
Kernel find_move_kernel(const detail::MoveOperation& operation, int atomic_bytes, bool one_thread);
Kernel find_norm_kernel(const detail::NormOperation& operation, int atomic_bytes, bool one_thread, unsigned lanes);
Kernel find_norm_rows_kernel(const detail::NormRowsOperation& operation, int atomic_bytes, bool one_thread,
                             unsigned lanes);
Kernel find_rejection_kernel(int atomic_bytes, bool one_thread);
Kernel find_moe_kernel(const detail::MoeOperation& operation, int atomic_bytes, bool one_thread, unsigned lanes);

// Calls `find` for the unit; throws where there is no kernel.
template <class Find>
Kernel in_units(int atomic_bytes, Find find) {
  Kernel kernel;
  if (atomic_bytes == 8) kernel = find.template operator()<8>();
  if (atomic_bytes == 16) kernel = find.template operator()<16>();
  if (kernel) return kernel;
  throw Error(Errc::invalid_argument,
              fmt::format("simulator: no instance of this operation for so many ranks, or none in units of {} bytes",
                          atomic_bytes));
}

}  // namespace weft::sim
