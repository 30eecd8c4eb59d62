#include "ops/moves/sim_move_kernels.hpp"

#include "ops/moves/move_instances.hpp"

namespace weft::sim {

using detail::CopyQuery;
using detail::CountedPartition;
using detail::EqualPartition;
using detail::ReplicaPartition;
using detail::ScatterQuery;

// The instances that set-ups run. No set-up has more than four ranks.
template <class Query>
constexpr bool is_simulated(const Query&, int) {
  return true;
}
template <class Partition>
constexpr bool is_simulated(const ScatterQuery<Partition>& query, int unit) {
  const detail::InstanceQuery& instance = query.instance;
  if (instance.size > 4 || instance.ops == detail::Ops::any) return false;
  return instance.type == DataType::bf16 || unit == 16;
}

// The instance that production takes for the call.
template <class Query>
Kernel find_move_kernel(const Wanted<Query>& wanted, const RunAs& as) {
  return in_units(as.atomic_bytes, [&]<int unit>() {
    Kernel kernel;
    with_instance(rows_of<[](const auto& row) { return is_simulated(row, unit); }>(detail::MoveFamily::List{}),
                  wanted.query, [&]<class A>() { kernel = kernel_of<A, unit>(wanted.work, as.one_thread); });
    return kernel;
  });
}
template Kernel find_move_kernel(const Wanted<CopyQuery<EqualPartition, 1, false>>&, const RunAs&);
template Kernel find_move_kernel(const Wanted<CopyQuery<EqualPartition, 1, true>>&, const RunAs&);
template Kernel find_move_kernel(const Wanted<CopyQuery<CountedPartition, 1, false>>&, const RunAs&);
template Kernel find_move_kernel(const Wanted<CopyQuery<CountedPartition, 1, true>>&, const RunAs&);
template Kernel find_move_kernel(const Wanted<CopyQuery<CountedPartition, detail::kMaxTensors, false>>&, const RunAs&);
template Kernel find_move_kernel(const Wanted<CopyQuery<CountedPartition, detail::kMaxTensors, true>>&, const RunAs&);
template Kernel find_move_kernel(const Wanted<CopyQuery<ReplicaPartition, detail::kMaxTensors, false>>&, const RunAs&);
template Kernel find_move_kernel(const Wanted<CopyQuery<ReplicaPartition, detail::kMaxTensors, true>>&, const RunAs&);
template Kernel find_move_kernel(const Wanted<ScatterQuery<EqualPartition>>&, const RunAs&);
template Kernel find_move_kernel(const Wanted<ScatterQuery<CountedPartition>>&, const RunAs&);
template Kernel find_move_kernel(const Wanted<detail::BarrierQuery>&, const RunAs&);
template Kernel find_move_kernel(const Wanted<detail::CountsQuery>&, const RunAs&);

}  // namespace weft::sim
