// All kernels of gathers of columns.
#pragma once

#include "kernel/instances.hpp"
#include "ops/columns/column_kernels.hpp"
#include "ops/moves/push_copy.hpp"

namespace weft::detail {

template <bool mapped, bool symmetric>
using ColumnsOf = Instances<
    Instance<PushCopy<ColumnPartition<mapped>, false, 1, symmetric>,
             ColumnQuery<mapped, symmetric>{.aligned16 = false}>,
    Instance<PushCopy<ColumnPartition<mapped>, true, 1, symmetric>, ColumnQuery<mapped, symmetric>{.aligned16 = true}>>;

struct ColumnFamily {
  using List = Join<ColumnsOf<false, false>, ColumnsOf<false, true>, ColumnsOf<true, false>, ColumnsOf<true, true>>;
};

}  // namespace weft::detail
