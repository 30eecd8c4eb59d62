// All kernels that put columns together.
#pragma once

#include "kernel/instances.hpp"
#include "ops/columns/column_kernels.hpp"
#include "ops/moves/push_copy.hpp"

namespace weft::detail {

template <class Partition, bool symmetric = false>
using ColumnsOf = Instances<
    Instance<PushCopy<Partition, false, 1, symmetric>, CopyQuery<Partition, 1, symmetric>{.aligned16 = false}>,
    Instance<PushCopy<Partition, true, 1, symmetric>, CopyQuery<Partition, 1, symmetric>{.aligned16 = true}>>;

struct ColumnFamily {
  using List = Join<ColumnsOf<ColumnPartition<false>>, ColumnsOf<ColumnPartition<false>, true>,
                    ColumnsOf<ColumnPartition<true>>, ColumnsOf<ColumnPartition<true>, true>,
                    ColumnsOf<GroupColumnPartition<false>>, ColumnsOf<GroupColumnPartition<true>>>;
};

}  // namespace weft::detail
