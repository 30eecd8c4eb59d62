// A part of a CUDA block that serves as a block for an algorithm: a few warps with their own barrier. While one warp
// group stands still for a release or waits for a signal, the others of its block use the processor.
#pragma once

#include <cstdint>

#include "team/cuda_block.cuh"

namespace weft::detail {

// Blocks begin and end a call as a whole; between, all is the warp group's, the words that its threads share included.
// Warp groups with neighbouring numbers are of different blocks. If an algorithm tells them apart by number, every
// block has groups of each kind.
class CudaWarpGroup : public CudaBlock {
 public:
  // `warp_groups`: of each block, 1 or its threads / kWarpGroupThreads. A division by a number that only the call knows
  // would hold up all addresses (docs/notes/0040-shared-words-of-warp-groups.md).
  __device__ explicit CudaWarpGroup(std::uint32_t warp_groups)
      : groups_(warp_groups),
        size_(warp_groups == 1 ? blockDim.x : kWarpGroupThreads),
        group_(warp_groups == 1 ? 0 : threadIdx.x / kWarpGroupThreads) {}

  __device__ std::uint32_t thread_rank() const { return threadIdx.x - group_ * size_; }
  __device__ std::uint32_t size() const { return size_; }
  __device__ std::uint32_t block_rank() const { return group_ * gridDim.x + blockIdx.x; }
  __device__ std::uint32_t blocks() const { return groups_ * gridDim.x; }
  __device__ void share(std::uint32_t i, std::uint64_t word) const { shared_words()[group_ * kSharedWords + i] = word; }
  __device__ std::uint64_t shared(std::uint32_t i) const { return shared_words()[group_ * kSharedWords + i]; }
  __device__ std::uint32_t* tally() const {
    __shared__ std::uint32_t words[kMostWarpGroups * kTallyWords];
    return words + group_ * kTallyWords;
  }
  // Barrier 0 is the whole block's.
  __device__ void sync() const { ptx::sync_some(1 + group_, size_); }
  __device__ bool all(bool good) const { return ptx::all_of_some(1 + group_, size_, good); }

 private:
  __device__ static std::uint64_t* shared_words() {
    __shared__ std::uint64_t words[kMostWarpGroups * kSharedWords];
    return words;
  }

  std::uint32_t groups_, size_, group_;
};

static_assert(Team<CudaWarpGroup>);

}  // namespace weft::detail
