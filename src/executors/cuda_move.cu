#include "core/move_instances.hpp"
#include "executors/gpu_functions.cuh"

namespace weft::detail {

template GpuFunctions gpu_functions<MoveFamily>();

}  // namespace weft::detail
