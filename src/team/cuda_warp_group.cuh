// A part of a CUDA block that serves as a block for an algorithm: a few warps with their own barrier. While one warp
// group stands still for a release or waits for a signal, the others of its block use the processor.
#pragma once

#include <cstddef>
#include <cstdint>

#include "team/cuda_block.cuh"

namespace weft::detail {

// Blocks begin and end a call as a whole; between, all is the warp group's, the words that its threads share included.
// Warp groups with neighbouring numbers are of different blocks. If an algorithm tells them apart by number, every
// block has groups of each kind.
template <GpuStage kStage = GpuStage()>
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
  __device__ float* scratch() const {
    __shared__ float words[kMostWarpGroups * kScratchWords];
    return words + group_ * kScratchWords;
  }
  // Barrier 0 is the whole block's.
  __device__ void sync() const { ptx::sync_some(1 + group_, size_); }
  __device__ bool all(bool good) const { return ptx::all_of_some(1 + group_, size_, good); }

  // A launch brings the stages of all its warps as dynamic shared memory.
  static constexpr std::uint32_t kStagePlaces = kStage.places, kStageBytes = kStage.bytes;
  static_assert(kStagePlaces * (kStageBytes + sizeof(std::uint64_t)) <= kGpuStageOfWarp);
  static constexpr std::uint32_t kPieceBytes = kStageBytes;
  __device__ void begin_stage() {
    extern __shared__ __align__(128) std::byte weft_stages[];
    stage_ = weft_stages + threadIdx.x / kLanes * kGpuStageOfWarp;
    if (lane() < kStagePlaces) ptx::mbarrier_init(barrier_of(lane()), 1);
    ptx::fence_mbarrier_init();
    ptx::fence_proxy_async_shared();
    sync_lanes();
  }
  template <class Word>
  __device__ Word staged(std::uint32_t place, std::uint32_t i) const {
    return reinterpret_cast<const Word*>(place_at(place))[i];
  }
  template <class Word>
  __device__ void stage(std::uint32_t place, std::uint32_t i, Word word) const {
    reinterpret_cast<Word*>(place_at(place))[i] = word;
  }
  __device__ void load_bulk(std::uint32_t place, const void* from, std::uint32_t bytes) {
    loading_ |= 1u << place;
    if (lane() != place) return;
    ptx::mbarrier_arrive_expect(barrier_of(place), bytes);
    ptx::bulk_load(place_at(place), from, bytes, barrier_of(place));
  }
  // Without a deadline: this GPU's own memory always answers.
  __device__ void await_load(std::uint32_t place) {
    while (!ptx::mbarrier_try_wait(barrier_of(place), parities_ >> place & 1u)) {
    }
    parities_ ^= 1u << place;
    loading_ &= ~(1u << place);
  }
  __device__ void store_bulk(void* to, std::uint32_t place, std::uint32_t bytes, std::uint32_t from = 0) const {
    ptx::bulk_store(to, place_at(place) + from, bytes);
  }
  __device__ static void commit_stores() { ptx::bulk_commit(); }
  template <std::uint32_t pending>
  __device__ static void await_reads() {
    ptx::bulk_wait_read<pending>();
  }
  template <std::uint32_t pending>
  __device__ static void await_stores() {
    ptx::bulk_wait<pending>();
  }
  __device__ static void fence_stage() { ptx::fence_proxy_async_shared(); }
  __device__ static void fence_bulk() { ptx::fence_proxy_async_global(); }
  __device__ void end_stage() {
    for (std::uint32_t place = 0; place < kStagePlaces; ++place) {
      if ((loading_ >> place & 1u) != 0) await_load(place);
    }
    await_stores<0>();
  }

 private:
  __device__ static std::uint32_t lane() { return threadIdx.x % kLanes; }
  __device__ std::byte* place_at(std::uint32_t place) const { return stage_ + place * kStageBytes; }
  __device__ std::uint64_t* barrier_of(std::uint32_t place) const {
    return reinterpret_cast<std::uint64_t*>(stage_ + kStagePlaces * kStageBytes) + place;
  }
  __device__ static std::uint64_t* shared_words() {
    __shared__ std::uint64_t words[kMostWarpGroups * kSharedWords];
    return words;
  }

  std::uint32_t groups_, size_, group_;
  std::byte* stage_ = nullptr;                // of this warp: its places, then their loads' barriers
  std::uint32_t loading_ = 0, parities_ = 0;  // bit p: of place p
};

static_assert(StagedTeam<CudaWarpGroup<>>);
// The stages of a full block, with the words and counters above, fit into the 227 KB that a block of Hopper may have.
static_assert(kMostWarpGroups *
                  (kWarpGroupThreads / CudaBlock::kLanes * kGpuStageOfWarp +
                   CudaBlock::kTallyWords * sizeof(std::uint32_t) + kSharedWords * sizeof(std::uint64_t)) <=
              227 * 1024);

}  // namespace weft::detail
