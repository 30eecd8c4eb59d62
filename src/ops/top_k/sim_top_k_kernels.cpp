#include "ops/top_k/sim_top_k_kernels.hpp"

#include "ops/top_k/top_k_instances.hpp"

namespace weft::sim {
namespace {

// Types differ in how elements are read alone.
constexpr bool is_simulated(const detail::TopKQuery& query) {
  return query.type == DataType::bf16;
}

template <int unit, unsigned lanes>
Kernel find(const Wanted<detail::TopKQuery>& wanted, bool one_thread) {
  Kernel kernel;
  with_instance(rows_of<[](const auto& row) { return is_simulated(row); }>(detail::TopKFamily::List{}), wanted.query,
                [&]<class A>() { kernel = kernel_of<A, unit, lanes>(wanted.work, one_thread); });
  return kernel;
}

}  // namespace

Kernel find_top_k_kernel(const Wanted<detail::TopKQuery>& wanted, const RunAs& as) {
  return in_units_and_lanes(as, "search for the largest",
                            [&]<int unit, unsigned lanes>() { return find<unit, lanes>(wanted, as.one_thread); });
}

}  // namespace weft::sim
