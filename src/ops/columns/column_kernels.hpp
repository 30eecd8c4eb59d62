// Finds the kernels that put columns together.
#pragma once

#include "kernel/kernel.hpp"
#include "ops/columns/column_partition.hpp"
#include "ops/moves/move_kernels.hpp"

namespace weft::detail {

struct ColumnFamily;  // ops/columns/column_instances.hpp

template <bool mapped, bool symmetric>
using ColumnQuery = CopyQuery<ColumnPartition<mapped>, 1, symmetric>;
template <bool mapped>
using GroupColumnQuery = CopyQuery<GroupColumnPartition<mapped>, 1>;

}  // namespace weft::detail
