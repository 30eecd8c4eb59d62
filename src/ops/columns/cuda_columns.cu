#include "kernel/gpu_functions.cuh"
#include "ops/columns/column_instances.hpp"

namespace weft::detail {

template GpuFunctions gpu_functions<ColumnFamily>();

}  // namespace weft::detail
