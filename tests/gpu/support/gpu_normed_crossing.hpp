// A rank's memory for a crossing with residual and norm on the GPU: made once, for the largest call; filled, used and
// checked any number of times.
#pragma once

#include <cstring>
#include <span>

#include "gpu/support/gpu_world.hpp"
#include "kernel/cuda_error.hpp"
#include "support/normed_crossings.hpp"

namespace weft::test {

class GpuNormedCrossing {
 public:
  GpuNormedCrossing(GpuRank& gpu, const RankNormedCrossing& largest) : gpu_(gpu), largest_(largest) {
    for (std::size_t i = 0; i < largest.places(); ++i) {
      const std::size_t bytes = largest.place(i).before.size();
      copies_[i] = {gpu.host_memory(bytes), gpu.device_memory(bytes), bytes};
    }
    fill(largest);
  }
  void fill(const RankNormedCrossing& next) {
    for (std::size_t i = 0; i < next.places(); ++i) {
      const Bytes& from = next.place(i).before;
      if (from.empty()) continue;
      std::memcpy(copies_[i].host, from.data(), from.size());
      detail::check_cuda(
          cudaMemcpyAsync(copies_[i].device, copies_[i].host, from.size(), cudaMemcpyHostToDevice, gpu_.stream()),
          "upload");
    }
    gpu_.synchronize();
  }
  void call(const Group& group) {
    issue(
        group, largest_, [&](std::size_t i) { return copies_[i].device; }, gpu_.stream());
  }
  void check(const RankNormedCrossing& next) {
    for (const Copy& copy : copies_) {
      if (copy.bytes == 0) continue;
      detail::check_cuda(cudaMemcpyAsync(copy.host, copy.device, copy.bytes, cudaMemcpyDeviceToHost, gpu_.stream()),
                         "download");
    }
    gpu_.synchronize();
    for (std::size_t i = 0; i < next.places(); ++i)
      expect_after(next, i, std::span(copies_[i].host, next.place(i).after.size()));
  }

 private:
  struct Copy {
    std::byte* host;
    std::byte* device;
    std::size_t bytes;
  };
  GpuRank& gpu_;
  const RankNormedCrossing& largest_;
  Copy copies_[kNormTensors + 1];
};

inline void run_on_gpu_rank(const Group& group, GpuRank& gpu, const NormedCrossing& c) {
  gpu.reset();
  const RankNormedCrossing prepared = prepare(c, group.size(), group.rank());
  GpuNormedCrossing on_gpu(gpu, prepared);
  on_gpu.call(group);
  gpu.synchronize();
  group.check();
  on_gpu.check(prepared);
}

}  // namespace weft::test
