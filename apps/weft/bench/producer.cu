#include "bench/producer.hpp"

#include <cuda_fp16.h>

#include <algorithm>

#include "common/cuda_check.hpp"

namespace weft::cli {
namespace {

template <DataType type>
constexpr bool kIsFloating = is_floating(type);  // a kernel calls no function of the host

template <DataType type>
__global__ void __launch_bounds__(512) produce(void* buffer, std::size_t count, Data data, int rank, int step) {
  const std::size_t stride = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride) {
    const auto h = pattern::hash(rank, step, i);
    if constexpr (!kIsFloating<type>) {
      const std::uint64_t bits = pattern::integer(data, h);
      if constexpr (type == DataType::i32) static_cast<std::uint32_t*>(buffer)[i] = static_cast<std::uint32_t>(bits);
      if constexpr (type == DataType::i64) static_cast<std::uint64_t*>(buffer)[i] = bits;
      if constexpr (type == DataType::u8) static_cast<std::uint8_t*>(buffer)[i] = static_cast<std::uint8_t>(bits);
    } else {
      const float value = pattern::number(data, type, h);
      if constexpr (type == DataType::f32) static_cast<float*>(buffer)[i] = value;
      if constexpr (type == DataType::f16) static_cast<__half*>(buffer)[i] = __float2half_rn(value);
      if constexpr (type == DataType::bf16)  // exact in bf16: the rest of the bits is zero
        static_cast<std::uint16_t*>(buffer)[i] = static_cast<std::uint16_t>(__float_as_uint(value) >> 16);
    }
  }
}

}  // namespace

void enqueue_produce(const ProduceArgs& args, Stream stream) {
  if (args.count == 0) return;
  using Kernel = void (*)(void*, std::size_t, Data, int, int);
  constexpr Kernel kernels[] = {produce<DataType::bf16>, produce<DataType::f16>, produce<DataType::f32>,
                                produce<DataType::i32>,  produce<DataType::i64>, produce<DataType::u8>};
  const auto blocks = static_cast<unsigned>(std::min<std::size_t>((args.count + 511) / 512, 1024));
  kernels[static_cast<int>(args.type)]<<<blocks, 512, 0, stream>>>(args.buffer, args.count, args.data, args.rank,
                                                                   args.step);
  check(cudaGetLastError(), "launch of the producer");
}

}  // namespace weft::cli
