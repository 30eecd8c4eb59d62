#if WEFT_WITH_CUDA

// Lists the GPUs, and the reasons why one cannot be used.
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "fabric/fabric.hpp"
#include "fabric/nccl_table.hpp"
#include "kernel/cuda_error.hpp"

namespace weft::detail {

std::string why_too_old(int device) {
  constexpr int least = 9;  // Hopper
  int major = 0, minor = 0;
  check_cuda(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "cudaDeviceGetAttribute");
  check_cuda(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device), "cudaDeviceGetAttribute");
  if (major >= least) return {};
  return fmt::format("GPU {} has compute capability {}.{}; {}.0 or newer is needed", device, major, minor, least);
}

std::string why_no_cuda(int device) {
  int count = 0;
  const cudaError_t result = cudaGetDeviceCount(&count);
  if (result != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    return fmt::format("no usable GPU: {}", cudaGetErrorString(result));
  }
  if (count == 0) return "no GPU on this machine";
  if (device < 0) check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  if (device < count) {
    if (const std::string reason = why_too_old(device); !reason.empty()) return reason;
  }
  return why_no_nccl();
}

int cuda_device_in_turn(int number) {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess && count != 0) return number % count;
  static_cast<void>(cudaGetLastError());
  return number;
}

}  // namespace weft::detail

#endif
