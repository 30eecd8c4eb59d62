#include "bench/push.hpp"

#include "common/cuda_check.hpp"

namespace weft::cli {
namespace {

constexpr unsigned kThreads = 512;
constexpr int kAtOnce = 4;  // loads under way

__global__ void __launch_bounds__(kThreads) push(PushArgs args) {
  const std::size_t packs = args.bytes / sizeof(uint4), first = static_cast<std::size_t>(args.rank) * packs;
  const std::size_t stride = static_cast<std::size_t>(gridDim.x) * kThreads;
  for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * kThreads + threadIdx.x; i < packs;
       i += kAtOnce * stride) {
    uint4 pack[kAtOnce];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      if (i + k * stride < packs) pack[k] = static_cast<const uint4*>(args.input)[i + k * stride];
    }
#pragma unroll
    for (int turn = 0; turn < kMostPushed; ++turn) {
      if (turn >= args.ranks) break;
      if (turn == 0 && !args.to_itself) continue;
      const int peer = args.rank + turn < args.ranks ? args.rank + turn : args.rank + turn - args.ranks;
      uint4* const output = static_cast<uint4*>(args.outputs[peer]) + first;
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        if (i + k * stride < packs) output[i + k * stride] = pack[k];
      }
    }
  }
}

}  // namespace

void enqueue_push(const PushArgs& args, Stream stream) {
  int device = 0, processors = 0;
  check(cudaGetDevice(&device), "the current GPU");
  check(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device), "processors of the GPU");
  push<<<static_cast<unsigned>(args.blocks != 0 ? args.blocks : processors), kThreads, 0, stream>>>(args);
  check(cudaGetLastError(), "launch of the push");
}

void enqueue_copy(const CopyArgs& args, Stream stream) {
  enqueue_push({.input = args.input,
                .bytes = args.bytes,
                .rank = 0,
                .ranks = 1,
                .outputs = {args.output},
                .blocks = args.blocks},
               stream);
}

}  // namespace weft::cli
