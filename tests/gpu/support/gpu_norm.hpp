// A rank's memory for a norm on the GPU: made once; filled, used and checked any number of times. Other norms may
// differ only in the seed.
#pragma once

#include <chrono>
#include <cstring>
#include <span>

#include "gpu/support/gpu_world.hpp"
#include "kernel/cuda_error.hpp"
#include "support/norms.hpp"

namespace weft::test {

class GpuNorm {
 public:
  GpuNorm(GpuRank& gpu, const RankNorm& first) : gpu_(gpu), first_(first) {
    for (int tensor = 0; tensor < kNormTensors; ++tensor) {
      const std::size_t bytes = first.memory[tensor].before.size();
      copies_[tensor] = {gpu.host_memory(bytes), gpu.device_memory(bytes), bytes};
    }
    fill(first);
  }
  void fill(const RankNorm& norm) {
    for (int tensor = 0; tensor < kNormTensors; ++tensor) {
      const Copy& copy = copies_[tensor];
      if (copy.bytes == 0) continue;
      std::memcpy(copy.host, norm.memory[tensor].before.data(), copy.bytes);
      detail::check_cuda(cudaMemcpyAsync(copy.device, copy.host, copy.bytes, cudaMemcpyHostToDevice, gpu_.stream()),
                         "upload");
    }
    gpu_.synchronize();
  }
  // Makes the call that was prepared first.
  void call(const Group& group) { call(group, gpu_.stream()); }
  void call(const Group& group, cudaStream_t stream) {
    AllReduceRmsNormArgs args = arguments(first_, [&](NormTensor tensor) { return copies_[tensor].device; });
    args.stream = stream;
    all_reduce_rms_norm(group, args);
  }
  void check(const RankNorm& norm) {
    for (const Copy& copy : copies_) {
      if (copy.bytes == 0) continue;
      detail::check_cuda(cudaMemcpyAsync(copy.host, copy.device, copy.bytes, cudaMemcpyDeviceToHost, gpu_.stream()),
                         "download");
    }
    gpu_.synchronize();
    for (int tensor = 0; tensor < kNormTensors; ++tensor) {
      expect_after(norm, static_cast<NormTensor>(tensor), std::span(copies_[tensor].host, copies_[tensor].bytes));
    }
  }

 private:
  struct Copy {
    std::byte* host;
    std::byte* device;
    std::size_t bytes;
  };
  GpuRank& gpu_;
  const RankNorm& first_;
  Copy copies_[kNormTensors];
};

inline void run_on_gpu_rank(const Group& group, GpuRank& gpu, const Norm& norm) {
  gpu.reset();
  const RankNorm prepared = prepare(norm, group.size(), group.rank());
  GpuNorm on_gpu(gpu, prepared);
  on_gpu.call(group);
  gpu.synchronize();
  group.check();
  on_gpu.check(prepared);
}

// Rows of more than 256 bytes go in pieces.
inline Config smallest_gpu_buffers(std::chrono::nanoseconds deadline = std::chrono::seconds{5}) {
  Config config = gpu_config(deadline);
  config.one_shot_bytes = config.two_shot_bytes = 256;
  return config;
}

}  // namespace weft::test
