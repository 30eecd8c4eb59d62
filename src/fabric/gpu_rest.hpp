// What the host does to a GPU besides making calls, without harm to whoever else uses it.
#pragma once

#include <cuda_runtime_api.h>

#include <chrono>

#include "kernel/cuda_error.hpp"

namespace weft::detail {

// Makes `device` current, and what CUDA takes for unsafe allowed in this thread: else copies and allocations here would
// end the capture of a graph that goes on in another thread.
class SetupScope {
 public:
  explicit SetupScope(int device) : device_(device) {
    check_cuda(cudaThreadExchangeStreamCaptureMode(&mode_), "cudaThreadExchangeStreamCaptureMode");
  }
  ~SetupScope() { static_cast<void>(cudaThreadExchangeStreamCaptureMode(&mode_)); }
  SetupScope(const SetupScope&) = delete;
  SetupScope& operator=(const SetupScope&) = delete;

 private:
  DeviceScope device_;
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

// Waits until all work that is on the GPU's queues now, whosever it is and graphs included, has ended. Throws
// Errc::timeout where that takes longer than `limit`; 0: none.
//
// Nothing but the whole GPU can be waited for: the host does not see launches of graphs, and a stream may be gone while
// its work is not. cudaDeviceSynchronize would end every capture on the GPU. So a thread of its own takes memory and
// frees it, which CUDA does once all streams have come to rest, whatever is captured meanwhile.
void wait_for_rest(int device, std::chrono::nanoseconds limit);
// The same, for what is destroyed. False, and a warning, where it takes longer or cannot be known. True also where CUDA
// itself has ended.
bool comes_to_rest(int device, std::chrono::nanoseconds limit) noexcept;

}  // namespace weft::detail
