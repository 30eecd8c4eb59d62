#include "gemm/cutlass_tile.cuh"

namespace weft::cli::grouped {

const TileKernels kFp8Tiles128 = kernels_of<cutlass::float_e4m3_t, 128>();

}  // namespace weft::cli::grouped
