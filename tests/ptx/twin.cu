// The one-shot all-reduce of bf16 sums on four ranks with whole packs, written by hand without team and templates.
// check_twin.py compiles it and the library's kernel for the same call, and compares the results.
//
// The twin does the template's work on the memory of the same channel. Both share everything outside a successful
// call's path: the tables, the wrappers of single instructions, and the cold functions that end a wait.
#include <cuda_bf16.h>

#include "kernel/collective.cuh"
#include "ops/all_reduce/one_shot_all_reduce.hpp"

namespace weft::detail {

using Library = OneShotAllReduce<Reduction<DataType::bf16, Ops::sum>, 4, true>;
template __global__ void collective<Library>(const __grid_constant__ Call, const __grid_constant__ Library::Work);

namespace twin {

constexpr std::uint32_t kRanks = 4;
constexpr std::uint32_t kSpinsPerCheck = 1024;
constexpr std::uint32_t kSentinelNan = 0x7fff7fff;

__device__ __forceinline__ CallId id(const Call& call, std::uint32_t epoch) {
  return {call.channel, epoch, call.fingerprint};
}

// The parts of a thread's work that depend neither on the epoch nor on data.
struct Plan {
  std::uint64_t* header_to;  // for a control block: of this thread's peer
  const std::uint64_t* header_from;
  const Pack* input;  // for a data block
  Pack* output;
  std::uint64_t packs, step, bank;
  Pack* to[kRanks];
  Pack* from;
};

__device__ __forceinline__ Plan plan(const Call& call, const AllReduceWork& work) {
  Plan p{};
  if (blockIdx.x == 0) {
    if (threadIdx.x < kRanks) {
      p.header_to = reinterpret_cast<std::uint64_t*>(call.region[threadIdx.x] + call.layout.headers) + call.rank;
      p.header_from = reinterpret_cast<std::uint64_t*>(call.region[call.rank] + call.layout.headers) + threadIdx.x;
    }
    return p;
  }
  const std::uint64_t begin = static_cast<std::uint64_t>(blockIdx.x - 1) * blockDim.x + threadIdx.x;
  const std::uint64_t packs = work.count / 8, slot_packs = call.layout.one_shot_packs;
  p.packs = begin < packs ? packs - begin : 0;
  p.step = static_cast<std::uint64_t>(gridDim.x - 1) * blockDim.x;
  p.bank = kRanks * slot_packs;
  p.input = static_cast<const Pack*>(work.input) + begin;
  p.output = static_cast<Pack*>(work.output) + begin;
#pragma unroll
  for (std::uint32_t k = 0; k < kRanks; ++k) {
    const std::uint32_t peer = (call.rank + k) % kRanks;
    p.to[k] = reinterpret_cast<Pack*>(call.region[peer] + call.layout.one_shot) + call.rank * slot_packs + begin;
    ptx::settle(p.to[k]);
  }
  p.from = reinterpret_cast<Pack*>(call.region[call.rank] + call.layout.one_shot) + begin;
  ptx::settle(p.from);
  ptx::settle(p.input);
  ptx::settle(p.output);
  ptx::settle(p.packs);
  ptx::settle(p.step);
  ptx::settle(p.bank);
  return p;
}

// There are fewer ranks than threads in a block.
__device__ __forceinline__ void control_block(const Call& call, const Plan& p, std::uint32_t epoch, bool overlapped) {
  CudaBlock cold;
  const std::uint64_t mine = static_cast<std::uint64_t>(epoch) << 32 | call.fingerprint;
  const std::uint32_t peer = threadIdx.x, bank = epoch % 2 * kRanks;
  const bool active = peer < kRanks && peer != call.rank;
  if (active) ptx::store_relaxed_sys(p.header_to + bank, mine);
  if (overlapped) {
    report(cold, id(call, epoch), {.code = Errc::overlap, .phase = 1});
    return;
  }
  if (!active) return;
  WaitState state;
  std::uint64_t word;
  std::uint32_t ended;
  for (std::uint32_t spins = 1;; ++spins) {
    word = ptx::load_relaxed_sys(p.header_from + bank);
    ended = ptx::load_relaxed_sys(call.poison);
    if (ended != 0 || static_cast<std::int32_t>(static_cast<std::uint32_t>(word >> 32) - epoch) >= 0) break;
    if (spins % kSpinsPerCheck != 0) continue;
    state = worth_waiting(cold, id(call, epoch), peer, {.phase = 1, .control = true}, state);
    if (state.began == 0) return;
  }
  if (!unpoisoned(cold, id(call, epoch), ended, 1)) return;
  if (word != mine) {
    report(cold, id(call, epoch),
           {.code = Errc::mismatch,
            .peer = call.channel->member[peer],
            .epoch_seen = static_cast<std::uint32_t>(word >> 32),
            .theirs = static_cast<std::uint32_t>(word),
            .phase = 1});
  }
}

__device__ __forceinline__ void data_block(const Call& call, const Plan& p, std::uint32_t epoch, const Pack& first) {
  const std::uint64_t bank = epoch % 2 * p.bank, slot_packs = call.layout.one_shot_packs;
  for (std::uint64_t i = 0; i < p.packs; i += p.step) {
    Pack pack = i == 0 ? first : p.input[i];
    if (pack.word[3] == kRestWord) pack.word[3] = kSentinelNan;
#pragma unroll
    for (std::uint32_t k = 0; k < kRanks; ++k) ptx::store_relaxed_sys(p.to[k] + bank + i, pack);
  }

  CudaBlock cold;
  Pack* slots = p.from + bank;
  for (std::uint64_t i = 0; i < p.packs; i += p.step) {
    Pack got[kRanks];
    WaitState state;
    for (std::uint32_t spins = 1;; ++spins) {
#pragma unroll
      for (std::uint32_t k = 0; k < kRanks; ++k) got[k] = ptx::load_relaxed_sys(slots + k * slot_packs + i);
      bool all = true;
#pragma unroll
      for (std::uint32_t k = 0; k < kRanks; ++k) all &= got[k].word[3] != kRestWord;
      if (all) break;
      if (spins % kSpinsPerCheck != 0) continue;
      std::uint32_t late = kNoPeer;
#pragma unroll
      for (std::uint32_t k = 0; k < kRanks; ++k) {
        if (got[k].word[3] == kRestWord && k != call.rank) late = k;
      }
      state = worth_waiting(cold, id(call, epoch), late, {.phase = 1}, state);
      if (state.began == 0) return;
    }
    Pack sum;
#pragma unroll
    for (std::uint32_t w = 0; w < 4; ++w) {
      float low = __uint_as_float(got[0].word[w] << 16), high = __uint_as_float(got[0].word[w] & 0xffff0000u);
#pragma unroll
      for (std::uint32_t k = 1; k < kRanks; ++k) {
        low += __uint_as_float(got[k].word[w] << 16);
        high += __uint_as_float(got[k].word[w] & 0xffff0000u);
      }
      const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
      sum.word[w] = reinterpret_cast<const std::uint32_t&>(both);
    }
#pragma unroll
    for (std::uint32_t k = 0; k < kRanks; ++k) ptx::store_relaxed_sys(slots + k * slot_packs + i, kRestPack);
    p.output[i] = sum;
  }
}

__device__ __forceinline__ void end_call(LocalState* local, std::uint32_t next) {
  __syncthreads();
  if (blockIdx.x != 0) {
    if (threadIdx.x == 0) ptx::store_relaxed_sys(&local->epochs[blockIdx.x].value, next);
    return;
  }
  if (threadIdx.x == 0) {
    ptx::store_relaxed_sys(&local->epochs[0].value, next);
    ptx::store_relaxed_sys(&local->busy, kIdle);
  }
  for (std::uint32_t block = gridDim.x + threadIdx.x; block < kMaxBlocks; block += blockDim.x) {
    ptx::store_relaxed_sys(&local->epochs[block].value, next);
  }
}

extern "C" __global__ void __launch_bounds__(1024)
    hand_written(const __grid_constant__ Call call, const __grid_constant__ AllReduceWork work) {
  const Plan p = plan(call, work);
  ptx::wait_for_predecessor();
  ptx::launch_successor();
  const bool control = blockIdx.x == 0;
  Pack first{};
  if (p.packs != 0) first = *p.input;

  const std::uint32_t epoch = ptx::load_relaxed_sys(&call.local->epochs[blockIdx.x].value);
  const std::uint32_t admitted = ptx::load_relaxed_sys(&call.local->admitted[blockIdx.x].value);
  if (admitted != call.generation) {
    CudaBlock cold;
    turn_away(cold, id(call, epoch), admitted);
    return;
  }
  if (control) {
    const bool overlapped = threadIdx.x == 0 && ptx::exchange_relaxed_gpu(&call.local->busy, kBusy) != kIdle;
    control_block(call, p, epoch, overlapped);
  } else {
    data_block(call, p, epoch, first);
  }
  end_call(call.local, epoch + 1);
}

}  // namespace twin
}  // namespace weft::detail
