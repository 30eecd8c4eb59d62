#if WEFT_WITH_CUDA

#include "fabric/gpu_arguments.hpp"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "kernel/cuda_error.hpp"

namespace weft::detail {

void check_gpu_buffer(int device, const char* name, const void* data) {
  cudaPointerAttributes attributes{};
  check_cuda(cudaPointerGetAttributes(&attributes, data), "cudaPointerGetAttributes");
  // Memory of a GPU that this one may not touch has no address here, so this comes first.
  if (attributes.type == cudaMemoryTypeDevice && attributes.device != device) {
    throw Error(Errc::invalid_argument, fmt::format("{}: {} is memory of GPU {}, and this rank drives GPU {}", name,
                                                    data, attributes.device, device));
  }
  // Its own has one where it is the thread's current GPU, or where that one reaches it.
  if (attributes.type == cudaMemoryTypeDevice) return;
  if (attributes.type == cudaMemoryTypeUnregistered || attributes.devicePointer == nullptr) {
    throw Error(Errc::invalid_argument, fmt::format("{}: {} is host memory that the GPU cannot reach", name, data));
  }
}

void check_gpu_stream(int device, Stream stream) {
  if (stream == nullptr || stream == cudaStreamLegacy || stream == cudaStreamPerThread) return;
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  int owner = -1;
  cudaError_t result = cudaStreamIsCapturing(stream, &capture);
  if (result == cudaSuccess && capture != cudaStreamCaptureStatusNone) return;  // and may not be asked more
  if (result == cudaSuccess) result = cudaStreamGetDevice(stream, &owner);
  if (result == cudaSuccess && owner == device) return;
  static_cast<void>(cudaGetLastError());
  throw Error(Errc::invalid_argument,
              result == cudaSuccess
                  ? fmt::format("stream: belongs to GPU {}, and this rank drives GPU {}", owner, device)
                  : fmt::format("stream: not a CUDA stream ({})", cudaGetErrorString(result)));
}

}  // namespace weft::detail

#endif
