#include "sim/move_kernels.hpp"

#include "core/dispatch_moves.hpp"

namespace weft::sim {
namespace {

// The instance that production takes for the call. Left out are those for more ranks than set-ups have.
template <int unit>
Kernel find(const detail::MoveOperation& operation, bool one_thread) {
  Kernel kernel;
  const auto take = [&]<class A>(const typename A::Work& work) {
    if constexpr (A::kSize <= 4) kernel = kernel_of<A, unit>(work, one_thread);
  };
  std::visit(detail::ServeMove<decltype(take)>{take}, operation);
  return kernel;
}

}  // namespace

Kernel find_move_kernel(const detail::MoveOperation& operation, int atomic_bytes, bool one_thread) {
  return in_units(atomic_bytes, [&]<int unit>() { return find<unit>(operation, one_thread); });
}

Kernel find_rejection_kernel(int atomic_bytes, bool one_thread) {
  return in_units(atomic_bytes,
                  [&]<int unit>() { return one_rank_kernel_of<detail::Rejection, unit>({}, one_thread); });
}

}  // namespace weft::sim
