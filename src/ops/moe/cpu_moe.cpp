#include "kernel/kernel_table.hpp"
#include "ops/moe/moe_instances.hpp"

namespace weft::detail {

template std::span<const Kernel> kernels_of<MoeFamily>();

KernelFor<DispatchWork> find_kernel(const DispatchQuery& query) {
  return kernel_for<MoeFamily>(query);
}
KernelFor<CombineWork> find_kernel(const CombineQuery& query) {
  return kernel_for<MoeFamily>(query);
}

}  // namespace weft::detail
