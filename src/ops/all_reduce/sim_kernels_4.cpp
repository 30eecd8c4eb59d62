#include "ops/all_reduce/sim_kernels_impl.hpp"

namespace weft::sim {

AllReduceKernel find_kernel_4(const KernelQuery& query) {
  return find_kernel_of<4>(query);
}

}  // namespace weft::sim
