#include "core/moe_instances.hpp"
#include "executors/gpu_functions.cuh"

namespace weft::detail {

template GpuFunctions gpu_functions<MoeFamily>();

}  // namespace weft::detail
