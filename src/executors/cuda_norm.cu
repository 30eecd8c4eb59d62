#include "core/norm_instances.hpp"
#include "executors/gpu_functions.cuh"

namespace weft::detail {

template GpuFunctions gpu_functions<NormFamily>();

}  // namespace weft::detail
