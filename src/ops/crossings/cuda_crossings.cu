#include "kernel/gpu_functions.cuh"
#include "ops/crossings/crossing_instances.hpp"

namespace weft::detail {

template GpuFunctions gpu_functions<CrossingFamily>();

}  // namespace weft::detail
