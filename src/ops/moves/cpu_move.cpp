#include "kernel/kernel_table.hpp"
#include "ops/moves/move_instances.hpp"

namespace weft::detail {

template std::span<const Kernel> kernels_of<MoveFamily>();

template <class Shares, std::uint32_t most_tensors, bool symmetric>
KernelFor<CopyWork<Shares, most_tensors, symmetric>> find_kernel(
    const CopyQuery<Shares, most_tensors, symmetric>& query) {
  return kernel_for<MoveFamily>(query);
}
template KernelFor<CopyWork<EqualShares, 1, false>> find_kernel(const CopyQuery<EqualShares, 1, false>&);
template KernelFor<CopyWork<EqualShares, 1, true>> find_kernel(const CopyQuery<EqualShares, 1, true>&);
template KernelFor<CopyWork<CountedShares, 1, false>> find_kernel(const CopyQuery<CountedShares, 1, false>&);
template KernelFor<CopyWork<CountedShares, 1, true>> find_kernel(const CopyQuery<CountedShares, 1, true>&);
template KernelFor<CopyWork<CountedShares, kMaxTensors, false>> find_kernel(
    const CopyQuery<CountedShares, kMaxTensors, false>&);
template KernelFor<CopyWork<CountedShares, kMaxTensors, true>> find_kernel(
    const CopyQuery<CountedShares, kMaxTensors, true>&);

template <class Shares>
KernelFor<ReduceScatterWork<Shares>> find_kernel(const ScatterQuery<Shares>& query) {
  return kernel_for<MoveFamily>(query);
}
template KernelFor<ReduceScatterWork<EqualShares>> find_kernel(const ScatterQuery<EqualShares>&);
template KernelFor<ReduceScatterWork<CountedShares>> find_kernel(const ScatterQuery<CountedShares>&);

KernelFor<NoWork> find_kernel(const BarrierQuery& query) {
  return kernel_for<MoveFamily>(query);
}
KernelFor<CountsWork> find_kernel(const CountsQuery& query) {
  return kernel_for<MoveFamily>(query);
}

}  // namespace weft::detail
