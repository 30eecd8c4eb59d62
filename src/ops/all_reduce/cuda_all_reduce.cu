#include "kernel/gpu_functions.cuh"
#include "ops/all_reduce/all_reduce_instances.hpp"

namespace weft::detail {

template GpuFunctions gpu_functions<AllReduceFamily>();

}  // namespace weft::detail
