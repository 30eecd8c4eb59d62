#include "kernel/kernel_table.hpp"
#include "ops/top_k/top_k_instances.hpp"

namespace weft::detail {

template std::span<const Kernel> kernels_of<TopKFamily>();

KernelFor<TopKWork> find_kernel(const TopKQuery& query) {
  return kernel_for<TopKFamily>(query);
}

}  // namespace weft::detail
