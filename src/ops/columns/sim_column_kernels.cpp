#include "ops/columns/sim_column_kernels.hpp"

#include "ops/columns/column_instances.hpp"

namespace weft::sim {

template <class Query>
Kernel find_column_kernel(const Wanted<Query>& wanted, const RunAs& as) {
  return in_units(as.atomic_bytes, [&]<int unit>() {
    Kernel kernel;
    with_instance(detail::ColumnFamily::List{}, wanted.query,
                  [&]<class A>() { kernel = kernel_of<A, unit>(wanted.work, as.one_thread); });
    return kernel;
  });
}
template Kernel find_column_kernel(const Wanted<detail::ColumnQuery<false, false>>&, const RunAs&);
template Kernel find_column_kernel(const Wanted<detail::ColumnQuery<false, true>>&, const RunAs&);
template Kernel find_column_kernel(const Wanted<detail::ColumnQuery<true, false>>&, const RunAs&);
template Kernel find_column_kernel(const Wanted<detail::ColumnQuery<true, true>>&, const RunAs&);
template Kernel find_column_kernel(const Wanted<detail::GroupColumnQuery<false>>&, const RunAs&);
template Kernel find_column_kernel(const Wanted<detail::GroupColumnQuery<true>>&, const RunAs&);

}  // namespace weft::sim
