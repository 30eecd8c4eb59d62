#include "kernel/gpu_functions.cuh"
#include "ops/layer/layer_instances.hpp"

namespace weft::detail {

template GpuFunctions gpu_functions<LayerFamily>();

}  // namespace weft::detail
