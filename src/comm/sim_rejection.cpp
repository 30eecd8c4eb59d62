#include "comm/rejection_instances.hpp"
#include "sim/run_as.hpp"

namespace weft::sim {

Kernel find_rejection_kernel(const RunAs& as) {
  return in_units(as.atomic_bytes,
                  [&]<int unit>() { return one_rank_kernel_of<detail::Rejection, unit>({}, as.one_thread); });
}

}  // namespace weft::sim
