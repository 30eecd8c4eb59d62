#include "kernel/kernel_table.hpp"
#include "ops/layer/layer_instances.hpp"

namespace weft::detail {

template std::span<const Kernel> kernels_of<LayerFamily>();

KernelFor<SiluMulWork> find_kernel(const SiluMulQuery& query) {
  return kernel_for<LayerFamily>(query);
}

}  // namespace weft::detail
