#include "core/take_instances.hpp"
#include "executors/gpu_functions.cuh"

namespace weft::detail {

template GpuFunctions gpu_functions<TakeFamily>();

}  // namespace weft::detail
