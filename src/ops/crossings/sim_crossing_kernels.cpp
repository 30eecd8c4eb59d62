#include "ops/crossings/sim_crossing_kernels.hpp"

#include "ops/crossings/crossing_instances.hpp"

namespace weft::sim {

// Types other than bf16 differ from it in their wire format alone; i32 has the other one.
constexpr bool is_simulated(const detail::CrossingQuery& query) {
  return query.type == DataType::bf16 || query.type == DataType::i32;
}

Kernel find_crossing_kernel(const Wanted<detail::CrossingQuery>& wanted, const RunAs& as) {
  return in_units(as.atomic_bytes, [&]<int unit>() {
    Kernel kernel;
    with_instance(rows_of<[](const auto& row) { return is_simulated(row); }>(detail::CrossingFamily::List{}),
                  wanted.query, [&]<class A>() { kernel = kernel_of<A, unit>(wanted.work, as.one_thread); });
    return kernel;
  });
}

}  // namespace weft::sim
