#include "gemm/cutlass_tile.cuh"

namespace weft::cli::grouped {

const TileKernels kFp8Tiles64 = kernels_of<cutlass::float_e4m3_t, 64>();

}  // namespace weft::cli::grouped
