#include "core/dispatch_norm.hpp"
#include "sim/move_kernels.hpp"

namespace weft::sim {
namespace {

// The instance that production takes for the call. Left out are those for more ranks than set-ups have.
template <int unit>
Kernel find(const detail::NormOperation& operation, bool one_thread) {
  Kernel kernel;
  detail::with_norm(operation.type, operation.size, operation.algorithm,
                    operation.work.scaling != detail::RowScaling::none, [&]<class A>() {
                      if constexpr (A::kSize <= 4) kernel = kernel_of<A, unit>(operation.work, one_thread);
                    });
  return kernel;
}

}  // namespace

Kernel find_norm_kernel(const detail::NormOperation& operation, int atomic_bytes, bool one_thread) {
  return in_units(atomic_bytes, [&]<int unit>() { return find<unit>(operation, one_thread); });
}

}  // namespace weft::sim
