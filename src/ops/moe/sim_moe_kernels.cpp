#include <stdexcept>
#include <type_traits>

#include "ops/moe/moe_instances.hpp"
#include "ops/moe/sim_moe_kernels.hpp"

namespace weft::sim {
namespace {

template <class A, DataType type, ScaleOrder order>
constexpr bool casts = std::is_same_v<A, detail::MoeDispatch<detail::CastRow<type, order>>>;
template <class A>
constexpr bool of_f16 =
    casts<A, DataType::f16, ScaleOrder::rows> || casts<A, DataType::f16, ScaleOrder::columns> ||
    std::is_same_v<A, detail::MoeCombine<DataType::f16, 4>> || std::is_same_v<A, detail::MoeCombine<DataType::f16, 8>>;
template <class A>
constexpr bool is_ring_of_f16 = std::is_same_v<A, detail::MoeRingDispatch<detail::RingCastRow<DataType::f16>>> ||
                                std::is_same_v<A, detail::MoeRingCombine<DataType::f16>>;
// Columns are only for lanes that share a scale.
template <class A>
constexpr bool of_columns =
    casts<A, DataType::f16, ScaleOrder::columns> || casts<A, DataType::bf16, ScaleOrder::columns>;

template <int unit, unsigned lanes, class Query>
Kernel find(const Wanted<Query>& wanted, bool one_thread) {
  Kernel kernel;
  with_instance(detail::MoeFamily::List{}, wanted.query, [&]<class A>() {
    if constexpr ((lanes == 1 || !of_f16<A>)&&(lanes == 8 || !of_columns<A>)&&!is_ring_of_f16<A>)
      kernel = kernel_of<A, unit, lanes>(wanted.work, one_thread);
  });
  return kernel;
}

template <class Query>
Kernel find_with_lanes(const Wanted<Query>& wanted, const RunAs& as) {
  switch (as.lanes) {
    case 1:
      return in_units(as.atomic_bytes, [&]<int unit>() { return find<unit, 1>(wanted, as.one_thread); });
    case 2:
      return find<16, 2>(wanted, as.one_thread);
    case 8:  // from here on several lanes share a scale (CastRow::kSharers)
      return find<16, 8>(wanted, as.one_thread);
    default:
      throw std::invalid_argument("simulator: no dispatch or combine with so many lanes");
  }
}

}  // namespace

Kernel find_kernel(const Wanted<detail::DispatchQuery>& wanted, const RunAs& as) {
  return find_with_lanes(wanted, as);
}
Kernel find_kernel(const Wanted<detail::CombineQuery>& wanted, const RunAs& as) {
  return find_with_lanes(wanted, as);
}

}  // namespace weft::sim
