#include "kernel/gpu_functions.cuh"
#include "ops/moves/take_instances.hpp"

namespace weft::detail {

template GpuFunctions gpu_functions<TakeFamily>();

}  // namespace weft::detail
