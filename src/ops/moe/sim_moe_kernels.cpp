#include "ops/moe/sim_moe_kernels.hpp"
#include "ops/moe/moe_instances.hpp"

namespace weft::sim {
namespace {

// The instances that set-ups run.
constexpr bool is_simulated(const detail::DispatchQuery& query, unsigned lanes) {
  if (query.tallies && query.order == ScaleOrder::columns) return false;
  if (query.payloads && lanes == 8) return false;
  if (query.type != RowType::bf16 || (query.rounds && !query.ring && query.cast != RowCast::none)) return false;
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
  return in_units_and_lanes(as, "dispatch or combine",
                            [&]<int unit, unsigned lanes>() { return find<unit, lanes>(wanted, as.one_thread); });
}

}  // namespace

Kernel find_kernel(const Wanted<detail::DispatchQuery>& wanted, const RunAs& as) {
  return find_with_lanes(wanted, as);
}
Kernel find_kernel(const Wanted<detail::CombineQuery>& wanted, const RunAs& as) {
  return find_with_lanes(wanted, as);
}

}  // namespace weft::sim
