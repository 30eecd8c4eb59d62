// Turns CUDA's errors into Weft's, for the benchmark's own calls.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "weft/error.hpp"

namespace weft::cli {

inline void check(cudaError_t result, const char* what) {
  if (result == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());
  throw Error(Errc::system, std::string(what) + ": " + cudaGetErrorString(result));
}

}  // namespace weft::cli
