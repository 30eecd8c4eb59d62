#include "comm/rejection_instances.hpp"
#include "kernel/gpu_functions.cuh"

namespace weft::detail {

template GpuFunctions gpu_functions<RejectionFamily>();

}  // namespace weft::detail
