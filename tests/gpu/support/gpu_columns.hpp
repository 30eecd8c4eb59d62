// A rank's memory for a call that puts columns together on the GPU: made once; filled, used and checked any number of
// times.
#pragma once

#include <algorithm>
#include <vector>

#include "gpu/support/gpu_world.hpp"
#include "kernel/cuda_error.hpp"
#include "support/columns.hpp"

namespace weft::test {

class GpuColumns {
 public:
  // `output`: device memory, or null.
  GpuColumns(GpuRank& gpu, const PreparedColumns& prepared, std::byte* output = nullptr)
      : gpu_(gpu),
        prepared_(prepared),
        host_(gpu.host_memory(bytes())),
        input_(gpu.device_memory(prepared.input.size())),
        numbers_(gpu.device_memory(kNumberBytes)) {
    output_ = output != nullptr ? output : gpu.device_memory(prepared.output.size());
    fill(prepared);
  }
  // Writes the memory of another call of the same shape.
  void fill(const PreparedColumns& prepared) {
    std::ranges::copy(prepared.input, host_);
    std::ranges::copy(prepared.output, host_ + prepared.input.size());
    copy(input_, host_, prepared.input.size(), cudaMemcpyHostToDevice);
    copy(output_, host_ + prepared.input.size(), prepared.output.size(), cudaMemcpyHostToDevice);
    const std::vector<std::int32_t> numbers = numbers_of(prepared.c);
    copy(numbers_, reinterpret_cast<const std::byte*>(numbers.data()), numbers.size() * sizeof(std::int32_t),
         cudaMemcpyHostToDevice);
    gpu_.synchronize();
  }
  void call(const Group& group) {
    const auto* const numbers = reinterpret_cast<const std::int32_t*>(numbers_);
    make_column_call(group, prepared_, {input_, output_, numbers, gpu_.stream()});
  }
  // Waits, and throws if anything is wrong.
  void check(const PreparedColumns& prepared) {
    copy(host_, output_, prepared.output.size(), cudaMemcpyDeviceToHost);
    gpu_.synchronize();
    expect_columns(prepared, {host_, prepared.output.size()});
  }

 private:
  std::size_t bytes() const { return prepared_.input.size() + prepared_.output.size(); }
  void copy(std::byte* to, const std::byte* from, std::size_t bytes, cudaMemcpyKind kind) {
    detail::check_cuda(cudaMemcpyAsync(to, from, bytes, kind, gpu_.stream()), "copy of columns");
  }

  GpuRank& gpu_;
  const PreparedColumns& prepared_;
  static constexpr std::size_t kNumberBytes = 256;
  std::byte *host_, *input_, *numbers_, *output_;
};

inline void run_on_gpu_rank(const Group& group, GpuRank& gpu, const ColumnCase& c) {
  gpu.reset();
  const PreparedColumns prepared = prepare(c, group.size(), group.rank());
  GpuColumns columns(gpu, prepared);
  columns.call(group);
  columns.check(prepared);
  group.check();
}

}  // namespace weft::test
