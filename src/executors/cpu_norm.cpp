#include "core/norm_instances.hpp"
#include "executors/kernel_table.hpp"

namespace weft::detail {

template std::span<const Kernel> kernels_of<NormFamily>();

KernelFor<NormWork> find_kernel(const FusedNormQuery& query) {
  return kernel_for<NormFamily>(query);
}
KernelFor<NormWork> find_kernel(const NormRowsQuery& query) {
  return kernel_for<NormFamily>(query);
}

}  // namespace weft::detail
