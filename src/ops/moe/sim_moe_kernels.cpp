#include <stdexcept>

#include "ops/moe/moe_instances.hpp"
#include "ops/moe/sim_moe_kernels.hpp"

namespace weft::sim {
namespace {

// Which instances set-ups run.
constexpr bool is_simulated(const detail::DispatchQuery& query, unsigned lanes) {
  if (query.type != RowType::bf16 || (query.rounds && query.cast != RowCast::none)) return false;
  // Columns, and casts in a ring, are for lanes that share a scale (CastRow::kSharers).
  return lanes == 8 || query.cast == RowCast::none || (query.order == ScaleOrder::rows && !query.ring);
}
constexpr bool is_simulated(const detail::CombineQuery& query, unsigned lanes) {
  return query.type == DataType::bf16 && !(query.late && lanes == 8);
}

template <int unit, unsigned lanes, class Query>
Kernel find(const Wanted<Query>& wanted, bool one_thread) {
  Kernel kernel;
  with_instance(rows_of<[](const auto& row) { return is_simulated(row, lanes); }>(detail::MoeFamily::List{}),
                wanted.query, [&]<class A>() { kernel = kernel_of<A, unit, lanes>(wanted.work, one_thread); });
  return kernel;
}

template <class Query>
Kernel find_with_lanes(const Wanted<Query>& wanted, const RunAs& as) {
  switch (as.lanes) {
    case 1:
      return in_units(as.atomic_bytes, [&]<int unit>() { return find<unit, 1>(wanted, as.one_thread); });
    case 2:
      return find<16, 2>(wanted, as.one_thread);
    case 8:
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
