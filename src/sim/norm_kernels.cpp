#include <stdexcept>

#include "core/dispatch_norm.hpp"
#include "sim/move_kernels.hpp"

namespace weft::sim {
namespace {

// The instance that production takes for the call. Left out are those for more ranks than set-ups have.
template <int unit>
Kernel find(const detail::NormOperation& operation, bool one_thread) {
  Kernel kernel;
  detail::with_norm(detail::NormInstance::of(operation), [&]<class A>() {
    if constexpr (A::kSize <= 4) kernel = kernel_of<A, unit>(operation.work, one_thread);
  });
  return kernel;
}

// What a block does with a row, where lanes add up, is the same among any number of ranks.
template <unsigned lanes>
Kernel find_with_lanes(const detail::NormOperation& operation) {
  using R = detail::Reduction<DataType::bf16, ReduceOp::sum>;
  if (operation.type != DataType::bf16 || operation.size != 2) {
    throw std::invalid_argument("simulator: norms with lanes are of two ranks, in bf16");
  }
  const auto find = [&]<bool casts>() {
    if (operation.algorithm == Algorithm::one_shot && operation.keeps_own) {
      return kernel_of<detail::OneShotRmsNorm<R, 2, casts, true>, 16, lanes>(operation.work, false);
    }
    if (operation.algorithm == Algorithm::one_shot) {
      return kernel_of<detail::OneShotRmsNorm<R, 2, casts, false>, 16, lanes>(operation.work, false);
    }
    return kernel_of<detail::TwoShotRmsNorm<R, 2, casts>, 16, lanes>(operation.work, false);
  };
  if (operation.work.scaling == detail::RowScaling::none) return find.template operator()<false>();
  return find.template operator()<true>();
}

}  // namespace

Kernel find_norm_kernel(const detail::NormOperation& operation, int atomic_bytes, bool one_thread, unsigned lanes) {
  switch (lanes) {
    case 1:
      return in_units(atomic_bytes, [&]<int unit>() { return find<unit>(operation, one_thread); });
    case 2:
      return find_with_lanes<2>(operation);
    case 16:  // from here on squares are added up by the warp (RmsNorm::kUnit)
      return find_with_lanes<16>(operation);
    default:
      throw std::invalid_argument("simulator: no norm with so many lanes");
  }
}

Kernel find_norm_rows_kernel(const detail::NormRowsOperation& operation, int atomic_bytes, bool one_thread,
                             unsigned lanes) {
  Kernel kernel;
  detail::with_norm_rows(operation.type, [&]<class A>() {
    kernel = in_units(atomic_bytes, [&]<int unit>() -> Kernel {
      if (lanes == 1) return one_rank_kernel_of<A, unit>(operation.work, one_thread);
      if constexpr (unit == 16) {
        if (lanes == 16) return one_rank_kernel_of<A, unit, 16>(operation.work, one_thread);
      }
      throw std::invalid_argument("simulator: no norm of rows with so many lanes");
    });
  });
  return kernel;
}

}  // namespace weft::sim
