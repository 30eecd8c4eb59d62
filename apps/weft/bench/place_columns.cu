#include "bench/place_columns.hpp"
#include "common/cuda_check.hpp"

namespace weft::cli {
namespace {

constexpr unsigned kThreads = 512;
constexpr int kAtOnce = 4;  // loads under way

// A block takes a piece of a row, so that no pack needs a division but for its shard.
__global__ void __launch_bounds__(kThreads) place_columns(PlaceColumnsArgs args) {
  const auto width = static_cast<unsigned>(args.row_bytes / sizeof(uint4));
  const auto shard = static_cast<unsigned>(args.shard_bytes / sizeof(uint4));
  for (std::size_t row = blockIdx.y; row < args.rows; row += gridDim.y) {
    uint4* const to = static_cast<uint4*>(args.output) + row * width;
    const uint4* const from = static_cast<const uint4*>(args.shards) + row * shard;
    const unsigned first = blockIdx.x * kThreads * kAtOnce + threadIdx.x;
    uint4 pack[kAtOnce];
#pragma unroll
    for (unsigned k = 0; k < kAtOnce; ++k) {
      const unsigned column = first + k * kThreads, rank = column / shard;
      if (column < width) pack[k] = from[rank * args.shard_rows * shard + (column - rank * shard)];
    }
#pragma unroll
    for (unsigned k = 0; k < kAtOnce; ++k) {
      const unsigned column = first + k * kThreads;
      if (column < width) to[column] = pack[k];
    }
  }
}

}  // namespace

void enqueue_place_columns(const PlaceColumnsArgs& args, Stream stream) {
  constexpr std::size_t piece = std::size_t{kThreads} * kAtOnce * sizeof(uint4), most_rows = 65535;
  const dim3 blocks(static_cast<unsigned>((args.row_bytes + piece - 1) / piece),
                    static_cast<unsigned>(args.rows < most_rows ? args.rows : most_rows));
  place_columns<<<blocks, kThreads, 0, stream>>>(args);
  check(cudaGetLastError(), "launch of the peer's placing of columns");
}

}  // namespace weft::cli
