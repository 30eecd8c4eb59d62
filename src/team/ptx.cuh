// Every line of PTX that Weft uses. Wrappers are named after the instruction. tests/ptx checks the generated code
// against the model that docs/architecture.md and the simulator assume.
#pragma once

#include <cstdint>

#include "base/pack.hpp"

namespace weft::detail::ptx {

// 16 bytes, single-copy atomic: a reader sees all of a store or nothing of it. docs/protocol.md#atomic-units says which
// documents promise that, and over which links.
__device__ __forceinline__ void store_relaxed_sys(Pack* to, Pack value) {
  const auto low = static_cast<std::uint64_t>(value.word[1]) << 32 | value.word[0];
  const auto high = static_cast<std::uint64_t>(value.word[3]) << 32 | value.word[2];
  asm volatile("{ .reg .b128 t; mov.b128 t, {%1, %2}; st.relaxed.sys.global.b128 [%0], t; }" ::"l"(to), "l"(low),
               "l"(high)
               : "memory");
}
__device__ __forceinline__ Pack load_relaxed_sys(const Pack* from) {
  std::uint64_t low, high;
  asm volatile("{ .reg .b128 t; ld.relaxed.sys.global.b128 t, [%2]; mov.b128 {%0, %1}, t; }"
               : "=l"(low), "=l"(high)
               : "l"(from)
               : "memory");
  return {{static_cast<std::uint32_t>(low), static_cast<std::uint32_t>(low >> 32), static_cast<std::uint32_t>(high),
           static_cast<std::uint32_t>(high >> 32)}};
}

__device__ __forceinline__ void store_relaxed_sys(std::uint64_t* to, std::uint64_t value) {
  asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(to), "l"(value) : "memory");
}
__device__ __forceinline__ std::uint64_t load_relaxed_sys(const std::uint64_t* from) {
  std::uint64_t value;
  asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(from) : "memory");
  return value;
}
__device__ __forceinline__ void store_relaxed_sys(std::uint32_t* to, std::uint32_t value) {
  asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}
__device__ __forceinline__ void store_release_sys(std::uint32_t* to, std::uint32_t value) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}
__device__ __forceinline__ void store_release_sys(std::uint64_t* to, std::uint64_t value) {
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(to), "l"(value) : "memory");
}
__device__ __forceinline__ std::uint64_t load_acquire_sys(const std::uint64_t* from) {
  std::uint64_t value;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(from) : "memory");
  return value;
}
__device__ __forceinline__ std::uint32_t load_relaxed_sys(const std::uint32_t* from) {
  std::uint32_t value;
  asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}
__device__ __forceinline__ std::uint32_t exchange_relaxed_gpu(std::uint32_t* at, std::uint32_t value) {
  std::uint32_t old;
  asm volatile("atom.relaxed.gpu.global.exch.b32 %0, [%1], %2;" : "=r"(old) : "l"(at), "r"(value) : "memory");
  return old;
}

// Through a multicast address: the sum of all members' data there, made by the switch in its own order, of 16-bit types
// in f32; and one store to all of them.
__device__ __forceinline__ Pack multimem_ld_reduce_bf16(const Pack* from) {
  Pack sum;
  asm volatile("multimem.ld_reduce.relaxed.sys.global.add.acc::f32.v4.bf16x2 {%0, %1, %2, %3}, [%4];"
               : "=r"(sum.word[0]), "=r"(sum.word[1]), "=r"(sum.word[2]), "=r"(sum.word[3])
               : "l"(from)
               : "memory");
  return sum;
}
__device__ __forceinline__ Pack multimem_ld_reduce_f16(const Pack* from) {
  Pack sum;
  asm volatile("multimem.ld_reduce.relaxed.sys.global.add.acc::f32.v4.f16x2 {%0, %1, %2, %3}, [%4];"
               : "=r"(sum.word[0]), "=r"(sum.word[1]), "=r"(sum.word[2]), "=r"(sum.word[3])
               : "l"(from)
               : "memory");
  return sum;
}
__device__ __forceinline__ Pack multimem_ld_reduce_f32(const Pack* from) {
  Pack sum;
  asm volatile("multimem.ld_reduce.relaxed.sys.global.add.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=r"(sum.word[0]), "=r"(sum.word[1]), "=r"(sum.word[2]), "=r"(sum.word[3])
               : "l"(from)
               : "memory");
  return sum;
}
__device__ __forceinline__ void multimem_st(Pack* to, const Pack& value) {
  asm volatile("multimem.st.relaxed.sys.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(value.word[0]),
               "r"(value.word[1]), "r"(value.word[2]), "r"(value.word[3])
               : "memory");
}
// A multicast address and an ordinary one of the same memory are aliases.
__device__ __forceinline__ void fence_proxy_alias() {
  asm volatile("fence.proxy.alias;" ::: "memory");
}

// Barriers of `threads` threads of a block, in whole warps: barrier 0 is __syncthreads().
__device__ __forceinline__ void sync_some(std::uint32_t barrier, std::uint32_t threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
// The same; true when `good` was true for every thread.
__device__ __forceinline__ bool all_of_some(std::uint32_t barrier, std::uint32_t threads, bool good) {
  std::uint32_t all;
  asm volatile("{ .reg .pred p, q; setp.ne.u32 p, %3, 0; bar.red.and.pred q, %1, %2, p; selp.u32 %0, 1, 0, q; }"
               : "=r"(all)
               : "r"(barrier), "r"(threads), "r"(static_cast<std::uint32_t>(good))
               : "memory");
  return all != 0;
}

// Programmatic dependent launch: waits until the kernels before this one have completed and their writes are visible.
__device__ __forceinline__ void wait_for_predecessor() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}
// Lets the kernel after this one be brought onto the GPU; it waits as above before it touches memory.
__device__ __forceinline__ void launch_successor() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

// Brings bytes from memory into the L2 cache; both are multiples of 16.
__device__ __forceinline__ void bulk_prefetch_l2(const void* from, std::uint32_t bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
}

// Bulk copies between memory and a block's shared memory; 16 divides addresses and bytes. A load counts its bytes at a
// barrier (mbarrier), whose phase ends when all have come. `parity`: of the phase that is awaited.
__device__ __forceinline__ std::uint32_t shared_address(const void* at) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(at));
}
__device__ __forceinline__ void mbarrier_init(std::uint64_t* barrier, std::uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}
__device__ __forceinline__ void fence_mbarrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void mbarrier_arrive_expect(std::uint64_t* barrier, std::uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
               "r"(bytes)
               : "memory");
}
__device__ __forceinline__ bool mbarrier_try_wait(std::uint64_t* barrier, std::uint32_t parity) {
  std::uint32_t ended;
  asm volatile(
      "{ .reg .pred p; mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
      : "=r"(ended)
      : "r"(shared_address(barrier)), "r"(parity)
      : "memory");
  return ended != 0;
}
__device__ __forceinline__ void bulk_load(void* to_shared, const void* from, std::uint32_t bytes,
                                          std::uint64_t* barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   shared_address(to_shared)),
               "l"(from), "r"(bytes), "r"(shared_address(barrier))
               : "memory");
}
__device__ __forceinline__ void bulk_store(void* to, const void* from_shared, std::uint32_t bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to),
               "r"(shared_address(from_shared)), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void bulk_commit() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
// Until at most `pending` groups of this thread are under way; and until at most so many still read shared memory.
template <std::uint32_t pending>
__device__ __forceinline__ void bulk_wait() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(pending) : "memory");
}
template <std::uint32_t pending>
__device__ __forceinline__ void bulk_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(pending) : "memory");
}
// Bulk copies reach memory by another way than threads (the async proxy). These fences order both.
__device__ __forceinline__ void fence_proxy_async_shared() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
__device__ __forceinline__ void fence_proxy_async_global() {
  asm volatile("fence.proxy.async.global;" ::: "memory");
}

// No instruction: a use of `value` (of 8 bytes) that the compiler may not move behind the instructions above.
template <class Value>
__device__ __forceinline__ void settle(Value& value) {
  asm volatile("" : "+l"(value));
}

__device__ __forceinline__ std::uint64_t global_timer_ns() {
  std::uint64_t now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}

// max that lets NaN win and orders −0 below +0.
__device__ __forceinline__ float max_nan(float a, float b) {
  float result;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}

}  // namespace weft::detail::ptx
