#include "kernel/kernel_table.hpp"
#include "ops/norm/norm_instances.hpp"

namespace weft::detail {

template std::span<const Kernel> kernels_of<NormFamily>();

KernelFor<NormWork> find_kernel(const FusedNormQuery& query) {
  return kernel_for<NormFamily>(query);
}
KernelFor<NormInRolesWork> find_kernel(const NormInRolesQuery& query) {
  return kernel_for<NormFamily>(query);
}
KernelFor<NormWork> find_kernel(const NormRowsQuery& query) {
  return kernel_for<NormFamily>(query);
}

}  // namespace weft::detail
