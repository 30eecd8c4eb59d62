// A rank's memory for a search for the largest on the GPU: made once; filled, used and checked any number of times.
#pragma once

#include <algorithm>

#include "gpu/support/gpu_world.hpp"
#include "kernel/cuda_error.hpp"
#include "support/top_k.hpp"

namespace weft::test {

class GpuTopK {
 public:
  GpuTopK(GpuRank& gpu, const PreparedTopK& prepared)
      : gpu_(gpu),
        prepared_(prepared),
        host_(gpu.host_memory(prepared.input.size() + outputs())),
        input_(gpu.device_memory(prepared.input.size())),
        output_(gpu.device_memory(outputs())) {
    fill(prepared);
  }
  void fill(const PreparedTopK& prepared) {
    std::ranges::copy(prepared.input, host_);
    copy(input_, host_, prepared.input.size(), cudaMemcpyHostToDevice);
    detail::check_cuda(cudaMemsetAsync(output_, 0xa5, outputs(), gpu_.stream()), "cudaMemset");
    gpu_.synchronize();
  }
  void call(const Group& group) {
    top_k_columns(group, arguments_of(prepared_, input_, output_, output_ + values(), gpu_.stream()));
  }
  // Waits, and throws if anything is wrong.
  void check(const PreparedTopK& prepared) {
    copy(host_, output_, outputs(), cudaMemcpyDeviceToHost);
    gpu_.synchronize();
    expect_largest(prepared, {host_, prepared.values.size()}, {host_ + values(), prepared.indices.size()});
  }

 private:
  std::size_t values() const { return (prepared_.values.size() + 15) / 16 * 16; }
  std::size_t outputs() const { return values() + prepared_.indices.size() + 16; }
  void copy(std::byte* to, const std::byte* from, std::size_t bytes, cudaMemcpyKind kind) {
    detail::check_cuda(cudaMemcpyAsync(to, from, bytes, kind, gpu_.stream()), "copy of rows");
  }

  GpuRank& gpu_;
  const PreparedTopK& prepared_;
  std::byte *host_, *input_, *output_;
};

}  // namespace weft::test
