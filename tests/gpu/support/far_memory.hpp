// Memory on the current GPU that is too large for a GpuRank.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <memory>

#include "kernel/cuda_error.hpp"

namespace weft::test {

struct Freed {
  void operator()(std::byte* memory) const { static_cast<void>(cudaFree(memory)); }
};
using FarMemory = std::unique_ptr<std::byte, Freed>;
inline FarMemory far_memory(std::size_t bytes) {
  std::byte* memory = nullptr;
  detail::check_cuda(cudaMalloc(&memory, bytes), "cudaMalloc");
  return FarMemory(memory);
}

}  // namespace weft::test
