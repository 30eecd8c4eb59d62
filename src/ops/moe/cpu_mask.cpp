#include "kernel/kernel_table.hpp"
#include "ops/moe/mask_ids.hpp"

namespace weft::detail {

template std::span<const Kernel> kernels_of<MaskFamily>();

KernelFor<MaskIdsWork> find_kernel(const MaskIdsQuery& query) {
  return kernel_for<MaskFamily>(query);
}

}  // namespace weft::detail
