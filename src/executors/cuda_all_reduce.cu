#include "core/all_reduce_instances.hpp"
#include "executors/gpu_functions.cuh"

namespace weft::detail {

template GpuFunctions gpu_functions<AllReduceFamily>();

}  // namespace weft::detail
