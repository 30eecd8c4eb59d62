// How one instance of an algorithm's template is launched, and how it is loaded.
#pragma once

#include <algorithm>

#include "executors/collective.cuh"
#include "executors/cuda_error.hpp"
#include "executors/executor.hpp"

namespace weft::detail {

template <class A>
void launch_instance(const PlannedCall& planned, const typename A::Work& work) {
  cudaLaunchAttribute dependent{};
  dependent.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  dependent.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(planned.blocks));
  config.blockDim = dim3(static_cast<unsigned>(planned.threads));
  config.stream = planned.stream;
  config.attrs = &dependent;
  config.numAttrs = 1;
  check_cuda(cudaLaunchKernelEx(&config, collective<A>, planned.call, work), "launch of a collective");
}

// Takes the smallest number of blocks of any kernel that fit on the current device beside each other, and so loads
// them.
class Loader {
 public:
  Loader() {
    int device = 0;
    check_cuda(cudaGetDevice(&device), "cudaGetDevice");
    check_cuda(cudaDeviceGetAttribute(&processors_, cudaDevAttrMultiProcessorCount, device), "cudaDeviceGetAttribute");
    check_cuda(cudaMalloc(&ended_, sizeof(LocalState)), "cudaMalloc");
    check_cuda(cudaMemset(ended_, 1, sizeof(LocalState)), "cudaMemset");
  }
  ~Loader() { static_cast<void>(cudaFree(ended_)); }  // waits for the kernels
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  template <class A>
  void operator()() {
    int per_processor = 0;
    check_cuda(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_processor, collective<A>, kMaxThreads<A>, 0),
               "loading a kernel");
    fewest_ = std::min(fewest_, per_processor * processors_);
    // The first launch of a kernel that needs more local memory than any before waits for all that runs on the device.
    cudaFuncAttributes attributes{};
    check_cuda(cudaFuncGetAttributes(&attributes, collective<A>), "cudaFuncGetAttributes");
    if (attributes.localSizeBytes <= reserved_) return;
    reserved_ = attributes.localSizeBytes;
    Call call{};  // of a group that has ended: the kernel looks at `dead` and returns
    call.local = ended_;
    collective<A><<<1, 32>>>(call, typename A::Work{});
    check_cuda(cudaGetLastError(), "first launch of a kernel");
  }
  int fewest() const { return fewest_; }

 private:
  int processors_ = 0, fewest_ = static_cast<int>(kMaxBlocks);
  std::size_t reserved_ = 0;
  LocalState* ended_ = nullptr;
};

// Families of kernels, a translation unit each.
void launch_moe(const PlannedCall& planned);
void load_moe(Loader& loader);

}  // namespace weft::detail
