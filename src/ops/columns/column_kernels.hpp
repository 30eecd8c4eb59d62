// Finds the kernel that serves a gather of columns.
#pragma once

#include "kernel/kernel.hpp"
#include "ops/columns/column_partition.hpp"
#include "ops/moves/move_kernels.hpp"

namespace weft::detail {

struct ColumnFamily;  // ops/columns/column_instances.hpp

template <bool mapped, bool symmetric>
using ColumnQuery = CopyQuery<ColumnPartition<mapped>, 1, symmetric>;

}  // namespace weft::detail
