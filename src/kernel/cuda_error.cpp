#if WEFT_WITH_CUDA

#include "kernel/cuda_error.hpp"

#include <fmt/format.h>

namespace weft::detail {

void throw_cuda(cudaError_t result, std::string_view what) {
  static_cast<void>(cudaGetLastError());  // not sticky: the host program's next check must not see ours
  throw Error(Errc::system, fmt::format("{}: {} ({})", what, cudaGetErrorString(result), cudaGetErrorName(result)));
}

}  // namespace weft::detail

#endif
