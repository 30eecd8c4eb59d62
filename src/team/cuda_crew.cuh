// A part of a CUDA block that serves as a block for an algorithm: a few warps with their own barrier. While one crew
// stands still for a release or waits for a signal, the others of its block use the processor.
#pragma once

#include <cstdint>

#include "team/cuda_block.cuh"

namespace weft::detail {

// Blocks begin and end a call as a whole; between, all is the crew's, the words that its threads share included. Crews
// that follow each other are of different blocks, so that every block has crews of each kind where algorithms tell them
// apart by number.
class CudaCrew : public CudaBlock {
 public:
  // `crews`: of each block, kMostCrews at most; divides its threads into whole warps.
  __device__ explicit CudaCrew(std::uint32_t crews)
      : crews_(crews), size_(blockDim.x / crews), crew_(threadIdx.x / size_) {}

  __device__ std::uint32_t thread_rank() const { return threadIdx.x - crew_ * size_; }
  __device__ std::uint32_t size() const { return size_; }
  __device__ std::uint32_t block_rank() const { return crew_ * gridDim.x + blockIdx.x; }
  __device__ std::uint32_t blocks() const { return crews_ * gridDim.x; }
  __device__ void share(std::uint32_t i, std::uint64_t word) const { shared_words()[crew_ * kSharedWords + i] = word; }
  __device__ std::uint64_t shared(std::uint32_t i) const { return shared_words()[crew_ * kSharedWords + i]; }
  // Barrier 0 is the whole block's.
  __device__ void sync() const { ptx::sync_some(1 + crew_, size_); }
  __device__ bool all(bool good) const { return ptx::all_of_some(1 + crew_, size_, good); }

 private:
  __device__ static std::uint64_t* shared_words() {
    __shared__ std::uint64_t words[kMostCrews * kSharedWords];
    return words;
  }

  std::uint32_t crews_, size_, crew_;
};

static_assert(Team<CudaCrew>);

}  // namespace weft::detail
