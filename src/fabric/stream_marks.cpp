#if WEFT_WITH_CUDA

#include "fabric/stream_marks.hpp"

#include "kernel/cuda_error.hpp"

namespace weft::detail {

StreamMarks::~StreamMarks() {
  for (const Mark& mark : marks_) {
    if (mark.event != nullptr) static_cast<void>(cudaEventDestroy(mark.event));
  }
}

void StreamMarks::set(int group, cudaStream_t stream) {
  const std::lock_guard lock(mutex_);
  Mark& mark = marks_[static_cast<std::size_t>(group)];
  if (mark.event == nullptr) {
    check_cuda(cudaEventCreateWithFlags(&mark.event, cudaEventDisableTiming), "cudaEventCreate");
  }
  check_cuda(cudaEventRecord(mark.event, stream), "cudaEventRecord");
  mark.stream = stream;
}

void StreamMarks::follow(int group, cudaStream_t stream) const {
  const std::lock_guard lock(mutex_);
  const Mark& mark = marks_[static_cast<std::size_t>(group)];
  if (mark.event == nullptr) return;
  // A stream has an order of its own. The one of each thread is another stream under the same name.
  if (mark.stream == stream && stream != cudaStreamPerThread) return;
  check_cuda(cudaStreamWaitEvent(stream, mark.event), "cudaStreamWaitEvent");
}

}  // namespace weft::detail

#endif
