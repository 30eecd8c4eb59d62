#include "core/dispatch_moe.hpp"
#include "sim/move_kernels.hpp"

namespace weft::sim {
namespace {

template <int unit>
Kernel find(const detail::MoeOperation& operation, bool one_thread) {
  Kernel kernel;
  const auto take = [&]<class A>(const typename A::Work& work) { kernel = kernel_of<A, unit>(work, one_thread); };
  std::visit(detail::ServeMoe<decltype(take)>{take}, operation);
  return kernel;
}

}  // namespace

Kernel find_moe_kernel(const detail::MoeOperation& operation, int atomic_bytes, bool one_thread) {
  return in_units(atomic_bytes, [&]<int unit>() { return find<unit>(operation, one_thread); });
}

}  // namespace weft::sim
