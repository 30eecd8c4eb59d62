#include <cuda_bf16.h>

#include <algorithm>

#include "gpu/support/kernels.hpp"
#include "gpu/support/plain_gemm.hpp"
#include "kernel/cuda_error.hpp"
#include "team/ptx.cuh"

namespace weft::test {
namespace {

using detail::check_cuda;

constexpr int kThreads = 256;

__device__ void spin(std::uint64_t nanoseconds) {
  const std::uint64_t begin = detail::ptx::global_timer_ns();
  while (detail::ptx::global_timer_ns() - begin < nanoseconds) {
  }
}

__global__ void delay_kernel(std::uint64_t nanoseconds) {
  spin(nanoseconds);
}
__global__ void __launch_bounds__(1024) hog_kernel(std::uint64_t nanoseconds) {
  spin(nanoseconds);
}

__global__ void increment_kernel(std::int32_t* data, std::size_t count, std::int32_t by) {
  const std::size_t step = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) data[i] += by;
}

__global__ void differences_kernel(std::byte* got, const std::byte* wanted, std::size_t bytes,
                                   unsigned long long* wrong) {
  const std::size_t step = std::size_t{gridDim.x} * blockDim.x;
  unsigned long long mine = 0;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < bytes; i += step) {
    mine += got[i] != wanted[i] ? 1 : 0;
    got[i] = static_cast<std::byte>(~static_cast<unsigned>(wanted[i]));
  }
  if (mine != 0) atomicAdd(wrong, mine);
}

// −4 … 3: sums over 8 ranks are exact in bf16.
__device__ int pattern(std::size_t index, int rank) {
  const std::uint64_t h = (index + 1) * 0x9e3779b97f4a7c15u + static_cast<std::uint64_t>(rank) * 0xd1b54a32d192ed03u;
  return static_cast<int>((h ^ h >> 29) * 0xbf58476d1ce4e5b9u >> 61) - 4;
}
__device__ std::uint16_t as_bf16(int value) {
  return __bfloat16_as_ushort(__float2bfloat16_rn(static_cast<float>(value)));
}

__global__ void fill_kernel(std::uint16_t* data, std::size_t count, int rank) {
  const std::size_t step = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    data[i] = as_bf16(pattern(i, rank));
  }
}
__global__ void count_wrong_kernel(const std::uint16_t* data, std::size_t count, int ranks, unsigned long long* wrong) {
  const std::size_t step = std::size_t{gridDim.x} * blockDim.x;
  unsigned long long mine = 0;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    int sum = 0;
    for (int rank = 0; rank < ranks; ++rank) sum += pattern(i, rank);
    mine += data[i] != as_bf16(sum) ? 1 : 0;
  }
  if (mine != 0) atomicAdd(wrong, mine);
}

std::uint64_t bounded(std::chrono::nanoseconds time) {
  return static_cast<std::uint64_t>(std::clamp<std::int64_t>(time.count(), 0, 1'000'000'000));
}
int blocks_for(std::size_t count) {
  return static_cast<int>(std::clamp<std::size_t>((count + kThreads - 1) / kThreads, 1, 1024));
}

}  // namespace

void load_test_kernels() {
  cudaFuncAttributes attributes{};
  const auto load = [&](auto* kernel) { check_cuda(cudaFuncGetAttributes(&attributes, kernel), "loading a kernel"); };
  load(delay_kernel);
  load(hog_kernel);
  load(increment_kernel);
  load(differences_kernel);
  load(fill_kernel);
  load(count_wrong_kernel);
  load_plain_gemm();
}

void launch_test_kernels() {
  delay(std::chrono::nanoseconds{0}, nullptr);
  hog(0, std::chrono::nanoseconds{0}, nullptr);
  increment(nullptr, 0, nullptr);
  count_differences(nullptr, nullptr, 0, nullptr, nullptr);
  fill_pattern(nullptr, 0, 0, nullptr);
  count_wrong_sums(nullptr, 0, 0, nullptr, nullptr);
  launch_plain_gemm();
}

void delay(std::chrono::nanoseconds time, cudaStream_t stream) {
  delay_kernel<<<1, 1, 0, stream>>>(bounded(time));
  check_cuda(cudaGetLastError(), "delay");
}
void hog(int spare, std::chrono::nanoseconds time, cudaStream_t stream) {
  int device = 0, processors = 0, threads = 0;
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  check_cuda(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device), "cudaDeviceGetAttribute");
  check_cuda(cudaDeviceGetAttribute(&threads, cudaDevAttrMaxThreadsPerMultiProcessor, device),
             "cudaDeviceGetAttribute");
  hog_kernel<<<(processors - spare) * (threads / 1024), 1024, 0, stream>>>(bounded(time));
  check_cuda(cudaGetLastError(), "hog");
}
void increment(std::int32_t* data, std::size_t count, cudaStream_t stream, std::int32_t by) {
  increment_kernel<<<blocks_for(count), kThreads, 0, stream>>>(data, count, by);
  check_cuda(cudaGetLastError(), "increment");
}
void count_differences(std::byte* got, const std::byte* wanted, std::size_t bytes, unsigned long long* wrong,
                       cudaStream_t stream) {
  differences_kernel<<<blocks_for(bytes), kThreads, 0, stream>>>(got, wanted, bytes, wrong);
  check_cuda(cudaGetLastError(), "count_differences");
}
void fill_pattern(std::uint16_t* data, std::size_t count, int rank, cudaStream_t stream) {
  fill_kernel<<<blocks_for(count), kThreads, 0, stream>>>(data, count, rank);
  check_cuda(cudaGetLastError(), "fill_pattern");
}
void count_wrong_sums(const std::uint16_t* data, std::size_t count, int ranks, unsigned long long* wrong,
                      cudaStream_t stream) {
  count_wrong_kernel<<<blocks_for(count), kThreads, 0, stream>>>(data, count, ranks, wrong);
  check_cuda(cudaGetLastError(), "count_wrong_sums");
}

}  // namespace weft::test
