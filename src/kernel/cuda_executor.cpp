#if WEFT_WITH_CUDA

#include <cuda_runtime_api.h>

#include <algorithm>

#include "kernel/cuda_error.hpp"
#include "kernel/executor.hpp"
#include "protocol/session.hpp"
#include "team/team.hpp"

namespace weft::detail {
namespace {

// Dynamic shared memory of a block.
int shared_bytes(const Kernel& kernel, int threads) {
  return kernel.staged ? threads / 32 * static_cast<int>(kGpuStageOfWarp) : 0;
}

// Loads kernels, so that no later launch has to, and finds the kernel that needs the most resources.
class Loader {
 public:
  Loader() {
    void* memory = nullptr;
    check_cuda(cudaMalloc(&memory, sizeof(EndedGroup)), "cudaMalloc");
    group_ = static_cast<EndedGroup*>(memory);
    check_cuda(cudaMemset(group_, 0xff, sizeof(EndedGroup)), "cudaMemset");
    Channel channel{};
    channel.local = &group_->local;
    channel.record = group_->record;
    check_cuda(cudaMemcpy(&group_->channel, &channel, sizeof(channel), cudaMemcpyHostToDevice), "cudaMemcpy");
  }
  ~Loader() { static_cast<void>(cudaFree(group_)); }  // waits for the kernels
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  void load(const Kernel& kernel) {
    const int shared = shared_bytes(kernel, kernel.most_threads);
    if (shared != 0) {
      check_cuda(cudaFuncSetAttribute(kernel.on_gpu, cudaFuncAttributeMaxDynamicSharedMemorySize, shared),
                 "shared memory of a kernel");
    }
    int blocks = 0;
    check_cuda(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel.on_gpu, kernel.most_threads,
                                                             static_cast<std::size_t>(shared)),
               "loading a kernel");
    // Plans of staged kernels know that one block fits on a processor, so it does not bound the others.
    if (!kernel.staged || blocks != 1) fewest_ = std::min(fewest_, blocks);
    // The first launch of a kernel that needs more local memory than any before waits for all work on the device.
    cudaFuncAttributes attributes{};
    check_cuda(cudaFuncGetAttributes(&attributes, kernel.on_gpu), "cudaFuncGetAttributes");
    if (attributes.localSizeBytes <= reserved_) return;
    reserved_ = attributes.localSizeBytes;
    Call ended{};
    ended.channel = &group_->channel;
    ended.local = &group_->local;
    void* arguments[] = {&ended, const_cast<void*>(kernel.no_work)};
    check_cuda(cudaLaunchKernel(kernel.on_gpu, dim3(1), dim3(32), arguments,
                                static_cast<std::size_t>(shared_bytes(kernel, 32)), nullptr),
               "first launch of a kernel");
  }
  // The least number of blocks of any kernel that fit on one processor.
  int fewest() const { return fewest_; }

 private:
  // All ones: the kernel finds kEnded and a complete record, and returns.
  struct EndedGroup {
    LocalState local;
    FaultRecord record[kFaultKinds];
    Channel channel;
  };
  EndedGroup* group_ = nullptr;
  std::size_t reserved_ = 0;
  int fewest_ = 1 << 20;
};

cudaLaunchAttribute clusters_of_two() {
  cudaLaunchAttribute clusters{};
  clusters.id = cudaLaunchAttributeClusterDimension;
  clusters.val.clusterDim = {2, 1, 1};
  return clusters;
}

}  // namespace

void launch_on_gpu(const KernelCall& call) {
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  // A staged kernel that came early would keep processors from other streams: it takes all shared memory of one.
  attributes[0].val.programmaticStreamSerializationAllowed = call.bound.kernel->staged ? 0 : 1;
  if (call.in_pairs) attributes[1] = clusters_of_two();
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(call.blocks));
  config.blockDim = dim3(static_cast<unsigned>(call.threads));
  config.dynamicSmemBytes = static_cast<std::size_t>(shared_bytes(*call.bound.kernel, call.threads));
  config.stream = call.stream;
  config.attrs = attributes;
  config.numAttrs = call.in_pairs ? 2 : 1;
  void* arguments[] = {const_cast<Call*>(&call.call), const_cast<std::byte*>(call.bound.work)};  // CUDA copies them
  check_cuda(cudaLaunchKernelExC(&config, call.bound.kernel->on_gpu, arguments), "launch of a kernel");
}

int load_kernels() {
  int device = 0, processors = 0;
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  check_cuda(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device), "cudaDeviceGetAttribute");
  Loader loader;
  for (const std::span<const Kernel> family : all_kernels()) {
    for (const Kernel& kernel : family) loader.load(kernel);
  }
  return std::min(loader.fewest() * processors, static_cast<int>(kMaxBlocks));
}

int most_paired_blocks() {
  cudaLaunchAttribute clusters = clusters_of_two();
  int fewest = static_cast<int>(kMaxBlocks) / 2;
  for (const std::span<const Kernel> family : all_kernels()) {
    for (const Kernel& kernel : family) {
      cudaLaunchConfig_t config{};
      config.gridDim = dim3(2);
      config.blockDim = dim3(static_cast<unsigned>(kernel.most_threads));
      config.dynamicSmemBytes = static_cast<std::size_t>(shared_bytes(kernel, kernel.most_threads));
      config.attrs = &clusters;
      config.numAttrs = 1;
      int pairs = 0;
      check_cuda(cudaOccupancyMaxActiveClusters(&pairs, kernel.on_gpu, &config), "pairs of blocks that fit");
      fewest = std::min(fewest, pairs);
    }
  }
  return 2 * fewest;
}

}  // namespace weft::detail

#endif
