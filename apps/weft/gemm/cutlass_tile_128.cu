#include "gemm/cutlass_tile.cuh"

namespace weft::cli::grouped {
namespace {

// Experts with many rows: the multiplications bound the time. Two groups of warps share a tile and what it loads.
struct Rows128 {
  static constexpr int rows = 128;
  using Schedule = cutlass::gemm::KernelPtrArrayTmaWarpSpecializedCooperativeFP8Blockwise;
  using EpilogueSchedule = cutlass::epilogue::PtrArrayTmaWarpSpecializedCooperative;
};

}  // namespace

const TileKernels kTiles128 = kernels_of<Rows128>();

}  // namespace weft::cli::grouped
