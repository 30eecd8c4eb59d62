#include <stdexcept>
#include <type_traits>

#include "core/dispatch_moe.hpp"
#include "sim/move_kernels.hpp"

namespace weft::sim {
namespace {

template <class A, DataType type, ScaleOrder order>
constexpr bool casts = std::is_same_v<A, detail::MoeDispatch<detail::CastRow<type, order>>>;
template <class A>
constexpr bool of_f16 =
    casts<A, DataType::f16, ScaleOrder::rows> || casts<A, DataType::f16, ScaleOrder::columns> ||
    std::is_same_v<A, detail::MoeCombine<DataType::f16, 4>> || std::is_same_v<A, detail::MoeCombine<DataType::f16, 8>>;
// Columns are for the lanes that share a scale.
template <class A>
constexpr bool of_columns =
    casts<A, DataType::f16, ScaleOrder::columns> || casts<A, DataType::bf16, ScaleOrder::columns>;

template <int unit, unsigned lanes = 1>
Kernel find(const detail::MoeOperation& operation, bool one_thread) {
  Kernel kernel;
  const auto take = [&]<class A>(const typename A::Work& work) {
    if constexpr ((lanes == 1 || !of_f16<A>)&&(lanes == 8 || !of_columns<A>))
      kernel = kernel_of<A, unit, lanes>(work, one_thread);
  };
  std::visit(detail::ServeMoe<decltype(take)>{take}, operation);
  return kernel;
}

}  // namespace

Kernel find_moe_kernel(const detail::MoeOperation& operation, int atomic_bytes, bool one_thread, unsigned lanes) {
  switch (lanes) {
    case 1:
      return in_units(atomic_bytes, [&]<int unit>() { return find<unit>(operation, one_thread); });
    case 2:
      return find<16, 2>(operation, one_thread);
    case 8:  // from here on several lanes share a scale (CastRow::kSharers)
      return find<16, 8>(operation, one_thread);
    default:
      throw std::invalid_argument("simulator: no dispatch or combine with so many lanes");
  }
}

}  // namespace weft::sim
