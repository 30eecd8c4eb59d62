#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include "gpu/support/plain_gemm.hpp"
#include "kernel/cuda_error.hpp"
#include "support/layer_weight.hpp"

namespace weft::test {
namespace {

__device__ float scale_of(const PlainGemm& of, std::uint32_t row, std::uint32_t column) {
  const bool bytes = of.cast == RowCast::fp8_ue8m0;
  const std::uint32_t groups = of.gemm.input_columns / 128, group = column / 128;
  std::uint64_t at = std::uint64_t{row} * groups + group;
  if (of.order == ScaleOrder::columns) {
    const bool masked = of.gemm.layout == RowLayout::expert_masked;
    const std::uint32_t together = masked ? of.gemm.capacity : of.rows, word = bytes ? 4 : 1;
    const std::uint32_t columns = (groups + word - 1) / word, first = row / together;
    at = ((std::uint64_t{first} * columns + group / word) * together + row % together) * word + group % word;
  }
  if (!bytes) return static_cast<const float*>(of.gemm.input_scales)[at];
  return exp2f(static_cast<float>(static_cast<const std::uint8_t*>(of.gemm.input_scales)[at]) - 127.0f);
}

__device__ float input_of(const PlainGemm& of, std::uint32_t row, std::uint32_t column) {
  const std::uint64_t at = std::uint64_t{row} * of.gemm.input_columns + column;
  if (of.cast == RowCast::none) return __bfloat162float(static_cast<const __nv_bfloat16*>(of.gemm.input)[at]);
  __nv_fp8_e4m3 number;
  number.__x = static_cast<const std::uint8_t*>(of.gemm.input)[at];
  return static_cast<float>(number) * scale_of(of, row, column);
}

// A block for each expert and some of its rows, a thread for each output column.
__global__ void plain(PlainGemm of) {
  const ExpertGemm& gemm = of.gemm;
  if (gemm.counts == nullptr) return;
  const std::uint32_t local = gemm.first_expert + blockIdx.y;
  const bool masked = gemm.layout == RowLayout::expert_masked;
  const std::uint32_t begin = masked ? local * gemm.capacity : static_cast<std::uint32_t>(gemm.offsets[local]);
  for (auto place = static_cast<std::int32_t>(blockIdx.x); place < gemm.counts[local];
       place += static_cast<std::int32_t>(gridDim.x)) {
    const std::uint32_t row = begin + static_cast<std::uint32_t>(place);
    if (row >= of.rows) return;  // a dispatch that failed has left any counts
    for (std::uint32_t to = threadIdx.x; to < gemm.output_columns; to += blockDim.x) {
      float sum = 0;
      for (std::uint32_t i = 0; i < gemm.input_columns; ++i) {
        sum += input_of(of, row, i) * layer_weight(gemm.which == ExpertGemm::Which::up, of.first_global + local, i, to);
      }
      static_cast<__nv_bfloat16*>(gemm.output)[std::uint64_t{row} * gemm.output_columns + to] = __float2bfloat16(sum);
    }
  }
}

}  // namespace

void load_plain_gemm() {
  cudaFuncAttributes attributes{};
  detail::check_cuda(cudaFuncGetAttributes(&attributes, plain), "loading a kernel");
}
void launch_plain_gemm() {
  PlainGemm nothing{};
  nothing.gemm.experts = 1;
  enqueue(nothing);
}

void enqueue(const PlainGemm& of) {
  plain<<<dim3(4, of.gemm.experts), 128, 0, of.gemm.stream>>>(of);
  detail::check_cuda(cudaGetLastError(), "a plain GEMM");
}

}  // namespace weft::test
