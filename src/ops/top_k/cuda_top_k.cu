#include "kernel/gpu_functions.cuh"
#include "ops/top_k/top_k_instances.hpp"

namespace weft::detail {

template GpuFunctions gpu_functions<TopKFamily>();

}  // namespace weft::detail
