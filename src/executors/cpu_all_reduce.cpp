#include "core/all_reduce_instances.hpp"
#include "executors/kernel_table.hpp"

namespace weft::detail {

template std::span<const Kernel> kernels_of<AllReduceFamily>();

KernelFor<AllReduceWork> find_kernel(const AllReduceQuery& query) {
  return kernel_for<AllReduceFamily>(query);
}

}  // namespace weft::detail
