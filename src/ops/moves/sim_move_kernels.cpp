#include "ops/moves/sim_move_kernels.hpp"

#include "ops/moves/move_instances.hpp"

namespace weft::sim {

using detail::CopyQuery;
using detail::CountedPartition;
using detail::EqualPartition;
using detail::ScatterQuery;

// The instance that production takes for the call. Instances for more ranks than set-ups have are left out.
template <class Query>
Kernel find_move_kernel(const Wanted<Query>& wanted, const RunAs& as) {
  return in_units(as.atomic_bytes, [&]<int unit>() {
    Kernel kernel;
    with_instance(detail::MoveFamily::List{}, wanted.query, [&]<class A>() {
      if constexpr (A::kSize <= 4) kernel = kernel_of<A, unit>(wanted.work, as.one_thread);
    });
    return kernel;
  });
}
template Kernel find_move_kernel(const Wanted<CopyQuery<EqualPartition, 1, false>>&, const RunAs&);
template Kernel find_move_kernel(const Wanted<CopyQuery<EqualPartition, 1, true>>&, const RunAs&);
template Kernel find_move_kernel(const Wanted<CopyQuery<CountedPartition, 1, false>>&, const RunAs&);
template Kernel find_move_kernel(const Wanted<CopyQuery<CountedPartition, 1, true>>&, const RunAs&);
template Kernel find_move_kernel(const Wanted<CopyQuery<CountedPartition, detail::kMaxTensors, false>>&, const RunAs&);
template Kernel find_move_kernel(const Wanted<CopyQuery<CountedPartition, detail::kMaxTensors, true>>&, const RunAs&);
template Kernel find_move_kernel(const Wanted<ScatterQuery<EqualPartition>>&, const RunAs&);
template Kernel find_move_kernel(const Wanted<ScatterQuery<CountedPartition>>&, const RunAs&);
template Kernel find_move_kernel(const Wanted<detail::BarrierQuery>&, const RunAs&);
template Kernel find_move_kernel(const Wanted<detail::CountsQuery>&, const RunAs&);

}  // namespace weft::sim
