#if WEFT_WITH_CUDA

#include "fabric/stream_marks.hpp"

#include "kernel/cuda_error.hpp"

namespace weft::detail {

StreamMarks::~StreamMarks() {
  for (const auto& [group, event] : events_) static_cast<void>(cudaEventDestroy(event));
}

void StreamMarks::set(int group, cudaStream_t stream) {
  const std::lock_guard lock(mutex_);
  auto found = events_.find(group);
  if (found == events_.end()) {
    cudaEvent_t event = nullptr;
    check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreate");
    found = events_.emplace(group, event).first;
  }
  check_cuda(cudaEventRecord(found->second, stream), "cudaEventRecord");
}

void StreamMarks::follow(int group, cudaStream_t stream) const {
  const std::lock_guard lock(mutex_);
  const auto found = events_.find(group);
  if (found == events_.end()) return;
  check_cuda(cudaStreamWaitEvent(stream, found->second), "cudaStreamWaitEvent");
}

}  // namespace weft::detail

#endif
