#include <cuda_bf16.h>

#include "bench/sum_rows.hpp"
#include "common/cuda_graph.hpp"

namespace weft::cli {
namespace {

__global__ void sum_rows(SumRows of) {
  const std::uint32_t packs = of.columns / 8;
  const std::int32_t begin = of.firsts[blockIdx.x], end = of.firsts[blockIdx.x + 1];
  for (std::uint32_t pack = threadIdx.x; pack < packs; pack += blockDim.x) {
    float sum[8] = {};
    for (std::int32_t row = begin; row < end; ++row) {
      const uint4 in = static_cast<const uint4*>(of.rows)[std::uint64_t(row) * packs + pack];
      const auto* const pair = reinterpret_cast<const __nv_bfloat162*>(&in);
      for (int i = 0; i < 4; ++i) {
        sum[2 * i] += __low2float(pair[i]);
        sum[2 * i + 1] += __high2float(pair[i]);
      }
    }
    uint4 out;
    auto* const pair = reinterpret_cast<__nv_bfloat162*>(&out);
    for (int i = 0; i < 4; ++i) pair[i] = __floats2bfloat162_rn(sum[2 * i], sum[2 * i + 1]);
    static_cast<uint4*>(of.output)[std::uint64_t{blockIdx.x} * packs + pack] = out;
  }
}

}  // namespace

void enqueue_sum_rows(const SumRows& args, Stream stream) {
  if (args.tokens == 0) return;
  sum_rows<<<args.tokens, 256, 0, static_cast<cudaStream_t>(stream)>>>(args);
  check(cudaGetLastError(), "the owner's sum");
}

}  // namespace weft::cli
