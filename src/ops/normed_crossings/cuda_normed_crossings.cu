#include "kernel/gpu_functions.cuh"
#include "ops/normed_crossings/normed_crossing_instances.hpp"

namespace weft::detail {

template GpuFunctions gpu_functions<NormedCrossingFamily>();

}  // namespace weft::detail
