#include "comm/rejection_instances.hpp"
#include "kernel/kernel_table.hpp"

namespace weft::detail {

template std::span<const Kernel> kernels_of<RejectionFamily>();

KernelFor<NoWork> find_kernel(const RejectionQuery& query) {
  return kernel_for<RejectionFamily>(query);
}

}  // namespace weft::detail
