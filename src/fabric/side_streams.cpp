#include "fabric/side_streams.hpp"

#if WEFT_WITH_CUDA
#include <cuda_runtime_api.h>

#include <array>

#include "kernel/cuda_error.hpp"
#endif

namespace weft::detail {

#if WEFT_WITH_CUDA
namespace {

class GpuStreams final : public SideStreams {
 public:
  explicit GpuStreams(int device) : device_(device) {
    const DeviceScope scope(device_);
    for (cudaStream_t& stream : streams_)
      check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
    check_cuda(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "cudaEventCreate");
  }
  ~GpuStreams() override {
    for (const cudaStream_t stream : streams_) static_cast<void>(cudaStreamDestroy(stream));
    static_cast<void>(cudaEventDestroy(event_));
  }
  GpuStreams(const GpuStreams&) = delete;
  GpuStreams& operator=(const GpuStreams&) = delete;

  Stream stream(int number) const override { return streams_[static_cast<std::size_t>(number)]; }
  // A wait is for the newest record when it is enqueued. So one event serves all.
  void order(Stream before, Stream behind) const override {
    const DeviceScope scope(device_);
    check_cuda(cudaEventRecord(event_, before), "cudaEventRecord");
    check_cuda(cudaStreamWaitEvent(behind, event_), "cudaStreamWaitEvent");
  }

 private:
  int device_;
  std::array<cudaStream_t, kCount> streams_{};
  cudaEvent_t event_ = nullptr;
};

}  // namespace
#endif

std::unique_ptr<SideStreams> make_side_streams([[maybe_unused]] int cuda_device) {
#if WEFT_WITH_CUDA
  if (cuda_device >= 0) return std::make_unique<GpuStreams>(cuda_device);
#endif
  return std::make_unique<SideStreams>();
}

}  // namespace weft::detail
