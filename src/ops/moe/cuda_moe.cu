#include "kernel/gpu_functions.cuh"
#include "ops/moe/moe_instances.hpp"

namespace weft::detail {

template GpuFunctions gpu_functions<MoeFamily>();

}  // namespace weft::detail
