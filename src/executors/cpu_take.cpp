#include "core/take_instances.hpp"
#include "executors/kernel_table.hpp"

namespace weft::detail {

template std::span<const Kernel> kernels_of<TakeFamily>();

KernelFor<TakeWork> find_kernel(const TakeQuery& query) {
  return kernel_for<TakeFamily>(query);
}

}  // namespace weft::detail
