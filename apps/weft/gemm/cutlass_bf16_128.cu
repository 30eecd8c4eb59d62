#include "gemm/cutlass_tile.cuh"

namespace weft::cli::grouped {

const TileKernels kBf16Tiles128 = kernels_of<cutlass::bfloat16_t, 128>();

}  // namespace weft::cli::grouped
