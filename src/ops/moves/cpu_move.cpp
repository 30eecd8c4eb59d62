#include "kernel/kernel_table.hpp"
#include "ops/moves/move_instances.hpp"

namespace weft::detail {

template std::span<const Kernel> kernels_of<MoveFamily>();

template <class Partition, std::uint32_t most_tensors, bool symmetric>
KernelFor<CopyWork<Partition, most_tensors, symmetric>> find_kernel(
    const CopyQuery<Partition, most_tensors, symmetric>& query) {
  return kernel_for<MoveFamily>(query);
}
template KernelFor<CopyWork<EqualPartition, 1, false>> find_kernel(const CopyQuery<EqualPartition, 1, false>&);
template KernelFor<CopyWork<EqualPartition, 1, true>> find_kernel(const CopyQuery<EqualPartition, 1, true>&);
template KernelFor<CopyWork<CountedPartition, 1, false>> find_kernel(const CopyQuery<CountedPartition, 1, false>&);
template KernelFor<CopyWork<CountedPartition, 1, true>> find_kernel(const CopyQuery<CountedPartition, 1, true>&);
template KernelFor<CopyWork<CountedPartition, kMaxTensors, false>> find_kernel(
    const CopyQuery<CountedPartition, kMaxTensors, false>&);
template KernelFor<CopyWork<CountedPartition, kMaxTensors, true>> find_kernel(
    const CopyQuery<CountedPartition, kMaxTensors, true>&);
template KernelFor<CopyWork<ReplicaPartition, kMaxTensors, false>> find_kernel(
    const CopyQuery<ReplicaPartition, kMaxTensors, false>&);
template KernelFor<CopyWork<ReplicaPartition, kMaxTensors, true>> find_kernel(
    const CopyQuery<ReplicaPartition, kMaxTensors, true>&);

template <class Partition>
KernelFor<ReduceScatterWork<Partition>> find_kernel(const ScatterQuery<Partition>& query) {
  return kernel_for<MoveFamily>(query);
}
template KernelFor<ReduceScatterWork<EqualPartition>> find_kernel(const ScatterQuery<EqualPartition>&);
template KernelFor<ReduceScatterWork<CountedPartition>> find_kernel(const ScatterQuery<CountedPartition>&);

KernelFor<NoWork> find_kernel(const BarrierQuery& query) {
  return kernel_for<MoveFamily>(query);
}
KernelFor<CountsWork> find_kernel(const CountsQuery& query) {
  return kernel_for<MoveFamily>(query);
}

}  // namespace weft::detail
