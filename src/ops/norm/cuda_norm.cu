#include "kernel/gpu_functions.cuh"
#include "ops/norm/norm_instances.hpp"

namespace weft::detail {

template GpuFunctions gpu_functions<NormFamily>();

}  // namespace weft::detail
