// The GPU executor's team: the threads of one CUDA block.
#pragma once

#include <cstdint>

#include "team/ptx.cuh"
#include "team/team.hpp"
#include "weft/types.hpp"

namespace weft::detail {

class CudaBlock {
 public:
  static constexpr int kAtomicBytes = 16;
  static constexpr std::uint32_t kLeastThreads = 32;
  static constexpr std::uint32_t kMostBlocks = 256;
  static constexpr std::uint32_t kSpinsPerCheck = 1024;  // about a millisecond of polling over NVLink latencies
  static constexpr bool kMulticast = true;

  __device__ static std::uint32_t thread_rank() { return threadIdx.x; }
  __device__ static std::uint32_t size() { return blockDim.x; }
  __device__ static std::uint32_t block_rank() { return blockIdx.x; }
  __device__ static std::uint32_t blocks() { return gridDim.x; }
  __device__ static void sync() { __syncthreads(); }
  __device__ static bool all(bool good) { return __syncthreads_and(static_cast<int>(good)) != 0; }
  __device__ static void put(Pack* to, const Pack& value) { *to = value; }
  __device__ static Pack get(const Pack* from) { return *from; }
  static constexpr std::uint32_t kPacksAhead = 4;
  static constexpr std::uint32_t kLanes = 32;
  __device__ static bool all_lanes(bool good) { return __all_sync(~0u, good) != 0; }
  __device__ static float max_of(float value, std::uint32_t lanes) {
    for (std::uint32_t step = lanes / 2; step != 0; step /= 2) {
      value = fmaxf(value, __shfl_xor_sync(~0u, value, static_cast<int>(step)));
    }
    return value;
  }
  __device__ static std::uint32_t sum_of(std::uint32_t value, std::uint32_t lanes) {
    if (lanes == kLanes) return __reduce_add_sync(~0u, value);  // one instruction, not five exchanges
    for (std::uint32_t step = lanes / 2; step != 0; step /= 2) {
      value += __shfl_xor_sync(~0u, value, static_cast<int>(step));
    }
    return value;
  }
  __device__ static float sum_of(float value, std::uint32_t lanes) {
    for (std::uint32_t step = 1; step < lanes; step *= 2) value += __shfl_xor_sync(~0u, value, static_cast<int>(step));
    return value;
  }
  static constexpr std::uint32_t kScratchWords = 2 * kMostRowPacks / kLanes;
  __device__ static float* scratch() {
    __shared__ float words[kScratchWords];
    return words;
  }
  static constexpr std::uint32_t kTallyWords = kMostTallyWords;
  __device__ static std::uint32_t* tally() {
    __shared__ std::uint32_t words[kTallyWords];
    return words;
  }
  __device__ static void add(std::uint32_t* counter) { atomicAdd(counter, 1u); }
  __device__ static void sync_lanes() { __syncwarp(); }
  __device__ static void prefetch(const void* from, std::uint32_t bytes) { ptx::bulk_prefetch_l2(from, bytes); }
  __device__ static std::uint32_t most_of(std::uint32_t value) { return __reduce_max_sync(~0u, value); }
  __device__ static std::uint32_t or_of(std::uint32_t value) { return __reduce_or_sync(~0u, value); }
  __device__ static std::uint32_t from_lane(std::uint32_t value, std::uint32_t lane) {
    return __shfl_sync(~0u, value, static_cast<int>(lane));
  }

  __device__ static void share(std::uint32_t i, std::uint64_t word) { shared_words()[i] = word; }
  __device__ static std::uint64_t shared(std::uint32_t i) { return shared_words()[i]; }

  template <class Word>
  __device__ static void store(Word* to, Word value) {
    ptx::store_relaxed_sys(to, value);
  }
  template <class Word>
  __device__ static Word load(const Word* from) {
    return ptx::load_relaxed_sys(from);
  }
  template <class Word>
  __device__ static void store_release(Word* to, Word value) {
    ptx::store_release_sys(to, value);
  }
  __device__ static std::uint64_t load_acquire(const std::uint64_t* from) { return ptx::load_acquire_sys(from); }
  template <DataType type>
  __device__ static Pack load_sum(const Pack* from) {
    static_assert(type != DataType::i32, "nothing asks for it");
    if constexpr (type == DataType::bf16) return ptx::multimem_ld_reduce_bf16(from);
    if constexpr (type == DataType::f16) return ptx::multimem_ld_reduce_f16(from);
    return ptx::multimem_ld_reduce_f32(from);
  }
  __device__ static void store_all(Pack* to, const Pack& value) { ptx::multimem_st(to, value); }
  __device__ static void fence_alias() { ptx::fence_proxy_alias(); }
  __device__ static std::uint32_t exchange(std::uint32_t* at, std::uint32_t value) {
    return ptx::exchange_relaxed_gpu(at, value);
  }
  __device__ static std::uint64_t now() { return ptx::global_timer_ns(); }
  template <class Value>
  __device__ static void settle(Value& value) {
    ptx::settle(value);
  }
  __device__ static void relax(std::uint32_t) {}
  __device__ static int dead_peer() { return -1; }  // a GPU cannot see processes: deadlines and poison tell it

 private:
  // Kernels that share nothing have no such words.
  __device__ static std::uint64_t* shared_words() {
    __shared__ std::uint64_t words[kSharedWords];
    return words;
  }
};

static_assert(Team<CudaBlock>);

}  // namespace weft::detail
