#include "gemm/cutlass_tile.cuh"

namespace weft::cli::grouped {
namespace {

// Experts with few rows: weights bound the time. Two groups of warps take turns, each with a tile of its own.
struct Rows64 {
  static constexpr int rows = 64;
  using Schedule = cutlass::gemm::KernelPtrArrayTmaWarpSpecializedPingpongFP8Blockwise;
  using EpilogueSchedule = cutlass::epilogue::PtrArrayTmaWarpSpecializedPingpong;
};

}  // namespace

const TileKernels kTiles64 = kernels_of<Rows64>();

}  // namespace weft::cli::grouped
