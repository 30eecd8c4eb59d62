// How a kernel is launched, and how it is loaded beforehand.
#pragma once

#include <algorithm>

#include "executors/collective.cuh"
#include "executors/cuda_error.hpp"
#include "executors/executor.hpp"

namespace weft::detail {

template <class Work>
using Kernel = void (*)(Call, Work);

template <class Work>
void launch_kernel(Kernel<Work> kernel, const PlannedCall& planned, const Work& work) {
  cudaLaunchAttribute dependent{};
  dependent.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  dependent.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(planned.blocks));
  config.blockDim = dim3(static_cast<unsigned>(planned.threads));
  config.stream = planned.stream;
  config.attrs = &dependent;
  config.numAttrs = 1;
  check_cuda(cudaLaunchKernelEx(&config, kernel, planned.call, work), "launch of a kernel");
}
template <class A>
void launch(const PlannedCall& planned, const typename A::Work& work) {
  launch_kernel<typename A::Work>(collective<A>, planned, work);
}
template <class A>
void launch_one_rank(const PlannedCall& planned, const typename A::Work& work) {
  launch_kernel<typename A::Work>(one_rank<A>, planned, work);
}

// Loads kernels, so that no later launch has to, and finds the hungriest.
class Loader {
 public:
  Loader() {
    check_cuda(cudaMalloc(&group_, sizeof(EndedGroup)), "cudaMalloc");
    check_cuda(cudaMemset(group_, 0xff, sizeof(EndedGroup)), "cudaMemset");
    Channel channel{};
    channel.local = &group_->local;
    channel.record = group_->record;
    check_cuda(cudaMemcpy(&group_->channel, &channel, sizeof(channel), cudaMemcpyHostToDevice), "cudaMemcpy");
  }
  ~Loader() { static_cast<void>(cudaFree(group_)); }  // waits for the kernels
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  template <class A>
  void load() {
    load_kernel<typename A::Work>(collective<A>, kMaxThreads<A>);
  }
  template <class A>
  void load_one_rank() {
    load_kernel<typename A::Work>(one_rank<A>, A::kMostThreads);
  }
  template <class Work>
  void load_kernel(Kernel<Work> kernel, int threads) {
    int blocks = 0;
    check_cuda(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, threads, 0), "loading a kernel");
    fewest_ = std::min(fewest_, blocks);
    // The first launch of a kernel that needs more local memory than any before waits for all that runs on the device.
    cudaFuncAttributes attributes{};
    check_cuda(cudaFuncGetAttributes(&attributes, kernel), "cudaFuncGetAttributes");
    if (attributes.localSizeBytes <= reserved_) return;
    reserved_ = attributes.localSizeBytes;
    Call ended{};
    ended.channel = &group_->channel;
    ended.local = &group_->local;
    kernel<<<1, 32>>>(ended, Work{});
    check_cuda(cudaGetLastError(), "first launch of a kernel");
  }
  // Blocks of any kernel that fit on one processor.
  int fewest() const { return fewest_; }

 private:
  // All ones: the kernel finds kEnded, and a record that is complete, and returns.
  struct EndedGroup {
    LocalState local;
    FaultRecord record[kFaultKinds];
    Channel channel;
  };
  EndedGroup* group_ = nullptr;
  std::size_t reserved_ = 0;
  int fewest_ = 1 << 20;
};

// One translation unit each.
void launch_operation(const PlannedCall& planned, const AllReduceOperation& operation);
void load_all_reduces(Loader& loader);
void launch_operation(const PlannedCall& planned, const MoveOperation& operation);
void load_moves(Loader& loader);
void launch_operation(const PlannedCall& planned, const MoeOperation& operation);
void load_moe(Loader& loader);
void launch_operation(const PlannedCall& planned, const NormOperation& operation);
void load_norms(Loader& loader);
void launch_operation(const PlannedCall& planned, const NormRowsOperation& operation);
void load_norm_rows(Loader& loader);
void launch_operation(const PlannedCall& planned, const TakeOperation& operation);
void load_takes(Loader& loader);
void launch_operation(const PlannedCall& planned, const RejectionOperation& operation);
void load_rejections(Loader& loader);

}  // namespace weft::detail
