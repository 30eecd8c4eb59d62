// Whether the kernels of a GPU can use what a caller has given.
#pragma once

#include "weft/types.hpp"

namespace weft::detail {

// Both throw Errc::invalid_argument with the argument's name, whichever GPU is the calling thread's.
void check_gpu_buffer(int device, const char* name, const void* data);
void check_gpu_stream(int device, Stream stream);

}  // namespace weft::detail
