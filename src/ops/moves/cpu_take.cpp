#include "kernel/kernel_table.hpp"
#include "ops/moves/take_instances.hpp"

namespace weft::detail {

template std::span<const Kernel> kernels_of<TakeFamily>();

KernelFor<TakeWork> find_kernel(const TakeQuery& query) {
  return kernel_for<TakeFamily>(query);
}

KernelFor<NumbersWork> find_kernel(const NumbersQuery& query) {
  return kernel_for<TakeFamily>(query);
}

}  // namespace weft::detail
