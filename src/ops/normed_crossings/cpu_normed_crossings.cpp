#include "kernel/kernel_table.hpp"
#include "ops/normed_crossings/normed_crossing_instances.hpp"

namespace weft::detail {

template std::span<const Kernel> kernels_of<NormedCrossingFamily>();

KernelFor<NormedCrossingWork> find_kernel(const NormedCrossingQuery& query) {
  return kernel_for<NormedCrossingFamily>(query);
}

}  // namespace weft::detail
