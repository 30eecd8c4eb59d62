#include "kernel/gpu_functions.cuh"
#include "ops/moves/move_instances.hpp"

namespace weft::detail {

template GpuFunctions gpu_functions<MoveFamily>();

}  // namespace weft::detail
