#include "kernel/kernel_table.hpp"
#include "ops/columns/column_instances.hpp"

namespace weft::detail {

template std::span<const Kernel> kernels_of<ColumnFamily>();

template <class Partition, std::uint32_t most_tensors, bool symmetric>
KernelFor<CopyWork<Partition, most_tensors, symmetric>> find_kernel(
    const CopyQuery<Partition, most_tensors, symmetric>& query) {
  return kernel_for<ColumnFamily>(query);
}
template KernelFor<ColumnQuery<false, false>::Work> find_kernel(const ColumnQuery<false, false>&);
template KernelFor<ColumnQuery<false, true>::Work> find_kernel(const ColumnQuery<false, true>&);
template KernelFor<ColumnQuery<true, false>::Work> find_kernel(const ColumnQuery<true, false>&);
template KernelFor<ColumnQuery<true, true>::Work> find_kernel(const ColumnQuery<true, true>&);
template KernelFor<GroupColumnQuery<false>::Work> find_kernel(const GroupColumnQuery<false>&);
template KernelFor<GroupColumnQuery<true>::Work> find_kernel(const GroupColumnQuery<true>&);

}  // namespace weft::detail
