#include <stdexcept>

#include "ops/norm/norm_instances.hpp"
#include "ops/norm/sim_norm_kernels.hpp"

namespace weft::sim {
namespace {

// The instances that set-ups run. No set-up has more than four ranks. Lanes add up the squares of a block's row, which
// is the same among any number of ranks.
constexpr bool is_simulated(const detail::FusedNormQuery& query, int unit, unsigned lanes) {
  if (query.gamma_f32 && query.type != DataType::bf16) return false;
  if (lanes != 1) return query.size == 2 || query.gamma_f32;
  return query.size <= 4 && (query.type == DataType::bf16 || unit == 16);
}
constexpr bool is_simulated(const detail::NormInRolesQuery&, int, unsigned) {
  return true;
}
constexpr bool is_simulated(const detail::NormRowsQuery&, int, unsigned) {
  return true;
}

// The instance that production takes for the call.
template <int unit, unsigned lanes, class Query>
Kernel find(const Wanted<Query>& wanted, bool one_thread) {
  Kernel kernel;
  with_instance(rows_of<[](const auto& row) { return is_simulated(row, unit, lanes); }>(detail::NormFamily::List{}),
                wanted.query, [&]<class A>() { kernel = kernel_of<A, unit, lanes>(wanted.work, one_thread); });
  return kernel;
}

template <unsigned lanes, class Query>
Kernel find_with_lanes(const Wanted<Query>& wanted) {
  if (Kernel kernel = find<16, lanes>(wanted, false)) return kernel;
  throw std::invalid_argument("simulator: norms with lanes are of two ranks, in bf16");
}

template <class Query>
Kernel find_fused(const Wanted<Query>& wanted, const RunAs& as) {
  switch (as.lanes) {
    case 1:
      return in_units(as.atomic_bytes, [&]<int unit>() { return find<unit, 1>(wanted, as.one_thread); });
    case 2:
      return find_with_lanes<2>(wanted);
    case 16:  // from here on squares are added up by the warp (RmsNorm::kUnit)
      return find_with_lanes<16>(wanted);
    default:
      throw std::invalid_argument("simulator: no norm with so many lanes");
  }
}

}  // namespace

Kernel find_kernel(const Wanted<detail::FusedNormQuery>& wanted, const RunAs& as) {
  return find_fused(wanted, as);
}
Kernel find_kernel(const Wanted<detail::NormInRolesQuery>& wanted, const RunAs& as) {
  return find_fused(wanted, as);
}

Kernel find_kernel(const Wanted<detail::NormRowsQuery>& wanted, const RunAs& as) {
  Kernel kernel;
  with_instance(detail::NormFamily::List{}, wanted.query, [&]<class A>() {
    kernel = in_units(as.atomic_bytes, [&]<int unit>() -> Kernel {
      if (as.lanes == 1) return one_rank_kernel_of<A, unit>(wanted.work, as.one_thread);
      if constexpr (unit == 16) {
        if (as.lanes == 16) return one_rank_kernel_of<A, unit, 16>(wanted.work, as.one_thread);
      }
      throw std::invalid_argument("simulator: no norm of rows with so many lanes");
    });
  });
  return kernel;
}

}  // namespace weft::sim
