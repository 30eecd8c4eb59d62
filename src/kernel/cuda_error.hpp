// CUDA's and NCCL's errors as Weft's.
#pragma once

#include <cuda_runtime_api.h>

#include <string_view>

#include "weft/error.hpp"

namespace weft::detail {

[[noreturn]] void throw_cuda(cudaError_t result, std::string_view what);

inline void check_cuda(cudaError_t result, std::string_view what) {
  if (result != cudaSuccess) throw_cuda(result, what);
}

// The calling thread's current device, put back at the end of the scope.
class DeviceScope {
 public:
  explicit DeviceScope(int device) {
    check_cuda(cudaGetDevice(&before_), "cudaGetDevice");
    if (device != before_) check_cuda(cudaSetDevice(device), "cudaSetDevice");
    changed_ = device != before_;
  }
  ~DeviceScope() {
    if (changed_) static_cast<void>(cudaSetDevice(before_));
  }
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  int before_ = 0;
  bool changed_ = false;
};

}  // namespace weft::detail
