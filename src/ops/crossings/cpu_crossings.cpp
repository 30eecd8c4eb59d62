#include "kernel/kernel_table.hpp"
#include "ops/crossings/crossing_instances.hpp"

namespace weft::detail {

template std::span<const Kernel> kernels_of<CrossingFamily>();

KernelFor<CrossingWork> find_kernel(const CrossingQuery& query) {
  return kernel_for<CrossingFamily>(query);
}

}  // namespace weft::detail
