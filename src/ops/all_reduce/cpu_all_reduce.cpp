#include "kernel/kernel_table.hpp"
#include "ops/all_reduce/all_reduce_instances.hpp"

namespace weft::detail {

template std::span<const Kernel> kernels_of<AllReduceFamily>();

KernelFor<AllReduceWork> find_kernel(const AllReduceQuery& query) {
  return kernel_for<AllReduceFamily>(query);
}

}  // namespace weft::detail
