#include "core/rejection_instances.hpp"
#include "executors/gpu_functions.cuh"

namespace weft::detail {

template GpuFunctions gpu_functions<RejectionFamily>();

}  // namespace weft::detail
