#include "gpu/support/first_launches.hpp"

#include <cuda_runtime_api.h>

#include "gpu/support/gpu_world.hpp"
#include "gpu/support/kernels.hpp"
#include "kernel/cuda_error.hpp"
#include "kernel/kernel.hpp"

namespace weft::test {
namespace {

using detail::check_cuda;

// All ones: kernels find kEnded, and complete records.
struct EndedGroup {
  detail::LocalState local;
  detail::FaultRecord record[detail::kFaultKinds];
  detail::Channel channel;
};

}  // namespace

void make_first_launches() {
  for (int device = 0; device < gpu_count(); ++device) {
    const detail::DeviceScope scope(device);
    void* memory = nullptr;
    check_cuda(cudaMalloc(&memory, sizeof(EndedGroup)), "cudaMalloc");
    check_cuda(cudaMemset(memory, 0xff, sizeof(EndedGroup)), "cudaMemset");
    auto* const group = static_cast<EndedGroup*>(memory);
    detail::Channel channel{};
    channel.local = &group->local;
    channel.record = group->record;
    check_cuda(cudaMemcpy(&group->channel, &channel, sizeof(channel), cudaMemcpyHostToDevice), "cudaMemcpy");
    detail::Call ended{};
    ended.channel = &group->channel;
    ended.local = &group->local;
    for (const auto family : detail::all_kernels()) {
      for (const detail::Kernel& kernel : family) {
        void* arguments[] = {&ended, const_cast<void*>(kernel.no_work)};
        check_cuda(cudaLaunchKernel(kernel.on_gpu, dim3(1), dim3(32), arguments, 0, nullptr), "first launch");
      }
    }
    launch_test_kernels();
    check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    check_cuda(cudaFree(memory), "cudaFree");
  }
}

}  // namespace weft::test
