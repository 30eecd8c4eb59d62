// One kernel for each wrapper of team/ptx.cuh, each barrier of a block, and each access of a block to plain and shared
// memory. Also one for each operation of a warp. check_wrappers.py knows them by name and compiles them. They never
// run.
#include "team/cuda_block.cuh"

namespace ptx = weft::detail::ptx;
using weft::detail::CudaBlock;
using weft::detail::Pack;

extern "C" {

__global__ void store_relaxed_sys_pack(Pack* to, Pack value) {
  ptx::store_relaxed_sys(to, value);
}
__global__ void load_relaxed_sys_pack(const Pack* from, Pack* result) {
  *result = ptx::load_relaxed_sys(from);
}
__global__ void store_relaxed_sys_u64(std::uint64_t* to, std::uint64_t value) {
  ptx::store_relaxed_sys(to, value);
}
__global__ void load_relaxed_sys_u64(const std::uint64_t* from, std::uint64_t* result) {
  *result = ptx::load_relaxed_sys(from);
}
__global__ void store_relaxed_sys_u32(std::uint32_t* to, std::uint32_t value) {
  ptx::store_relaxed_sys(to, value);
}
__global__ void store_release_sys_u32(std::uint32_t* to, std::uint32_t value) {
  ptx::store_release_sys(to, value);
}
__global__ void store_release_sys_u64(std::uint64_t* to, std::uint64_t value) {
  ptx::store_release_sys(to, value);
}
__global__ void load_acquire_sys_u64(const std::uint64_t* from, std::uint64_t* result) {
  *result = ptx::load_acquire_sys(from);
}
__global__ void load_relaxed_sys_u32(const std::uint32_t* from, std::uint32_t* result) {
  *result = ptx::load_relaxed_sys(from);
}
__global__ void exchange_relaxed_gpu_u32(std::uint32_t* at, std::uint32_t value, std::uint32_t* result) {
  *result = ptx::exchange_relaxed_gpu(at, value);
}
__global__ void multimem_ld_reduce_bf16(const Pack* from, Pack* result) {
  *result = ptx::multimem_ld_reduce_bf16(from);
}
__global__ void multimem_ld_reduce_f16(const Pack* from, Pack* result) {
  *result = ptx::multimem_ld_reduce_f16(from);
}
__global__ void multimem_ld_reduce_f32(const Pack* from, Pack* result) {
  *result = ptx::multimem_ld_reduce_f32(from);
}
__global__ void multimem_st(Pack* to, Pack value) {
  ptx::multimem_st(to, value);
}
__global__ void fence_proxy_alias() {
  ptx::fence_proxy_alias();
}
__global__ void wait_for_predecessor() {
  ptx::wait_for_predecessor();
}
__global__ void launch_successor() {
  ptx::launch_successor();
}
__global__ void settle(std::uint64_t value, std::uint64_t* result) {
  ptx::settle(value);
  *result = value;
}
__global__ void global_timer_ns(std::uint64_t* result) {
  *result = ptx::global_timer_ns();
}
__global__ void max_nan(float a, float b, float* result) {
  *result = ptx::max_nan(a, b);
}
__global__ void sync_some(std::uint32_t barrier, std::uint32_t threads) {
  ptx::sync_some(barrier, threads);
}
__global__ void all_of_some(std::uint32_t barrier, std::uint32_t threads, std::uint32_t good, std::uint32_t* result) {
  *result = ptx::all_of_some(barrier, threads, good != 0);
}
__global__ void bulk_prefetch_l2(const Pack* from, std::uint32_t bytes) {
  ptx::bulk_prefetch_l2(from, bytes);
}
__global__ void mbarrier_init(std::uint64_t* barrier, std::uint32_t arrivals) {
  ptx::mbarrier_init(barrier, arrivals);
}
__global__ void fence_mbarrier_init() {
  ptx::fence_mbarrier_init();
}
__global__ void mbarrier_arrive_expect(std::uint64_t* barrier, std::uint32_t bytes) {
  ptx::mbarrier_arrive_expect(barrier, bytes);
}
__global__ void mbarrier_try_wait(std::uint64_t* barrier, std::uint32_t parity, std::uint32_t* result) {
  *result = ptx::mbarrier_try_wait(barrier, parity);
}
__global__ void bulk_load(void* to, const void* from, std::uint32_t bytes, std::uint64_t* barrier) {
  ptx::bulk_load(to, from, bytes, barrier);
}
__global__ void bulk_store(void* to, const void* from, std::uint32_t bytes) {
  ptx::bulk_store(to, from, bytes);
}
__global__ void bulk_commit() {
  ptx::bulk_commit();
}
__global__ void bulk_wait() {
  ptx::bulk_wait<1>();
}
__global__ void bulk_wait_read() {
  ptx::bulk_wait_read<1>();
}
__global__ void fence_proxy_async_shared() {
  ptx::fence_proxy_async_shared();
}
__global__ void fence_proxy_async_global() {
  ptx::fence_proxy_async_global();
}
__global__ void block_sync() {
  CudaBlock::sync();
}
__global__ void block_all(std::uint32_t good, std::uint32_t* result) {
  *result = CudaBlock::all(good != 0);
}
__global__ void plain_put(Pack* to, Pack value) {
  CudaBlock::put(to, value);
}
__global__ void plain_get(const Pack* from, Pack* result) {
  *result = CudaBlock::get(from);
}
__global__ void block_share(std::uint32_t i, std::uint64_t word) {
  CudaBlock::share(i, word);
}
__global__ void block_shared(std::uint32_t i, std::uint64_t* result) {
  *result = CudaBlock::shared(i);
}
__global__ void warp_all(std::uint32_t good, std::uint32_t* result) {
  *result = CudaBlock::all_lanes(good != 0);
}
__global__ void warp_max_of_two(float value, float* result) {
  *result = CudaBlock::max_of(value, 2);
}
__global__ void warp_sum_of_two(float value, float* result) {
  *result = CudaBlock::sum_of(value, 2);
}
__global__ void warp_sum_of_counts(std::uint32_t value, std::uint32_t* result) {
  *result = CudaBlock::sum_of(value, CudaBlock::kLanes);
}
__global__ void warp_most(std::uint32_t value, std::uint32_t* result) {
  *result = CudaBlock::most_of(value);
}
__global__ void warp_or(std::uint32_t value, std::uint32_t* result) {
  *result = CudaBlock::or_of(value);
}
__global__ void warp_sync() {
  CudaBlock::sync_lanes();
}
__global__ void warp_from_lane(std::uint32_t value, std::uint32_t lane, std::uint32_t* result) {
  *result = CudaBlock::from_lane(value, lane);
}

}  // extern "C"
