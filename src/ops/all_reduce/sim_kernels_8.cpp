#include "ops/all_reduce/sim_kernels_impl.hpp"

namespace weft::sim {

AllReduceKernel find_kernel_8(const KernelQuery& query) {
  return find_kernel_of<8>(query);
}

}  // namespace weft::sim
