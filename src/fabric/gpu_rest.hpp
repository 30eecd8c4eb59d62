// The host's operations on a GPU besides calls, without harm to others that use the GPU.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>

#include "kernel/cuda_error.hpp"

namespace weft::detail {

// Makes `device` current, and allows calls in this thread that CUDA takes for unsafe. Otherwise copies and allocations
// here would end a graph's capture in another thread.
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

// Waits until all work now on the GPU's queues has ended: graphs and work that Weft did not enqueue included. Throws
// Errc::timeout if that takes longer than `limit`; 0: no limit.
//
// Only the whole GPU can be waited for: the host does not see launches of graphs, and a stream may be gone while its
// work is not. cudaDeviceSynchronize would end every capture on the GPU. So a thread of its own takes memory and frees
// it. CUDA does that once all streams have come to rest, whatever is captured meanwhile.
void wait_for_rest(int device, std::chrono::nanoseconds limit);
// The same, for destructors. False, and a warning, if it takes longer or cannot be known. True also if CUDA itself has
// ended.
bool comes_to_rest(int device, std::chrono::nanoseconds limit) noexcept;
// For sums of limits, which may each be as long as time has numbers.
inline std::chrono::nanoseconds at_most_a_day(std::chrono::nanoseconds time) {
  return std::min<std::chrono::nanoseconds>(time, std::chrono::hours(24));
}

}  // namespace weft::detail
