#include "ops/normed_crossings/sim_normed_crossing_kernels.hpp"

#include "ops/normed_crossings/normed_crossing_instances.hpp"

namespace weft::sim {

// Types differ in their numbers alone, and kernels that cannot cast, or do not flow, lack code that the others have.
// Lanes add up squares as in norms, whose set-ups have them.
constexpr bool is_simulated(const detail::NormedCrossingQuery& query) {
  return query.type == DataType::bf16 && query.casts && query.flows;
}

Kernel find_normed_crossing_kernel(const Wanted<detail::NormedCrossingQuery>& wanted, const RunAs& as) {
  return in_units(as.atomic_bytes, [&]<int unit>() {
    Kernel kernel;
    with_instance(rows_of<[](const auto& row) { return is_simulated(row); }>(detail::NormedCrossingFamily::List{}),
                  wanted.query, [&]<class A>() { kernel = kernel_of<A, unit>(wanted.work, as.one_thread); });
    return kernel;
  });
}

}  // namespace weft::sim
