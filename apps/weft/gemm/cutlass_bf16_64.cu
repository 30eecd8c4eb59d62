#include "gemm/cutlass_tile.cuh"

namespace weft::cli::grouped {

const TileKernels kBf16Tiles64 = kernels_of<cutlass::bfloat16_t, 64>();

}  // namespace weft::cli::grouped
