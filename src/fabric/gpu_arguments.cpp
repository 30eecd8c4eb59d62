#if WEFT_WITH_CUDA

#include "fabric/gpu_arguments.hpp"

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <cstdint>

#include "kernel/cuda_error.hpp"

namespace weft::detail {

namespace {

// The driver's query for two attributes takes a fifth of the time of CUDA's query for all of them. Null if there is no
// such query.
using AskDriver = CUresult (*)(unsigned, CUpointer_attribute*, void**, CUdeviceptr);
AskDriver ask_driver() {
  static const AskDriver ask = [] {
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult found{};
    const cudaError_t asked =
        cudaGetDriverEntryPointByVersion("cuPointerGetAttributes", &entry, 12000, cudaEnableDefault, &found);
    if (asked == cudaSuccess && found == cudaDriverEntryPointSuccess) return reinterpret_cast<AskDriver>(entry);
    static_cast<void>(cudaGetLastError());
    return AskDriver{};
  }();
  return ask;
}

bool is_memory_of(int device, const void* data) {
  const AskDriver ask = ask_driver();
  if (ask == nullptr) return false;
  CUmemorytype type{};
  int owner = -1;
  CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
  void* answers[] = {&type, &owner};
  const CUresult asked = ask(2, attributes, answers, reinterpret_cast<CUdeviceptr>(data));
  return asked == CUDA_SUCCESS && type == CU_MEMORYTYPE_DEVICE && owner == device;
}

}  // namespace

void GpuArguments::check_buffer(int device, const char* name, const void* data) const {
  if (is_memory_of(device, data)) return;
  cudaPointerAttributes attributes{};
  check_cuda(cudaPointerGetAttributes(&attributes, data), "cudaPointerGetAttributes");
  // Memory of a GPU that this one may not touch has no address here, so this check comes first.
  if (attributes.type == cudaMemoryTypeDevice && attributes.device != device) {
    throw Error(Errc::invalid_argument, fmt::format("{}: {} is memory of GPU {}, and this rank drives GPU {}", name,
                                                    data, attributes.device, device));
  }
  // The GPU's own memory has an address if the thread's current GPU is this one, or reaches it.
  if (attributes.type == cudaMemoryTypeDevice) return;
  if (attributes.type == cudaMemoryTypeUnregistered || attributes.devicePointer == nullptr) {
    throw Error(Errc::invalid_argument, fmt::format("{}: {} is host memory that the GPU cannot reach", name, data));
  }
}

// The host reads the memory at the address that the GPU is given.
void GpuArguments::check_host_memory(const char* name, const void* data) const {
  cudaPointerAttributes attributes{};
  check_cuda(cudaPointerGetAttributes(&attributes, data), "cudaPointerGetAttributes");
  if (attributes.type != cudaMemoryTypeHost) {
    throw Error(Errc::invalid_argument,
                fmt::format("{}: {} is not pinned host memory (cudaHostAlloc, cudaMallocHost)", name, data));
  }
  if (attributes.devicePointer != data) {
    throw Error(Errc::invalid_argument, fmt::format("{}: {} is host memory that the GPU sees at {}, not there", name,
                                                    data, attributes.devicePointer));
  }
}

void GpuArguments::check_stream(int device, Stream stream) const {
  if (stream == nullptr || stream == cudaStreamLegacy || stream == cudaStreamPerThread) return;
  if (known_place(stream).load(std::memory_order_relaxed) != stream) ask_about_stream(device, stream);
}

void GpuArguments::ask_about_stream(int device, Stream stream) const {
  if (stream == nullptr || stream == cudaStreamLegacy || stream == cudaStreamPerThread) return;
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  int owner = -1;
  cudaError_t result = cudaStreamIsCapturing(stream, &capture);
  if (result == cudaSuccess && capture != cudaStreamCaptureStatusNone) return;  // and must not be queried further
  if (result == cudaSuccess) result = cudaStreamGetDevice(stream, &owner);
  if (result == cudaSuccess && owner == device) return known_place(stream).store(stream, std::memory_order_relaxed);
  static_cast<void>(cudaGetLastError());
  throw Error(Errc::invalid_argument,
              result == cudaSuccess
                  ? fmt::format("stream: belongs to GPU {}, and this rank drives GPU {}", owner, device)
                  : fmt::format("stream: not a CUDA stream ({})", cudaGetErrorString(result)));
}

}  // namespace weft::detail

#endif
