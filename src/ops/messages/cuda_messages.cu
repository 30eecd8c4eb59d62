#include "kernel/gpu_functions.cuh"
#include "ops/messages/message_instances.hpp"

namespace weft::detail {

template GpuFunctions gpu_functions<MessageFamily>();

}  // namespace weft::detail
