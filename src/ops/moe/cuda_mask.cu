#include "kernel/gpu_functions.cuh"
#include "ops/moe/mask_ids.hpp"

namespace weft::detail {

template GpuFunctions gpu_functions<MaskFamily>();

}  // namespace weft::detail
