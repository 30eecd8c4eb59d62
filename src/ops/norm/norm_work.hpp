// Arguments of the kernel of an all-reduce with residual and norm.
#pragma once

#include <cstdint>

#include "numeric/row_scaling.hpp"

namespace weft::detail {

// Rows are whole packs, at distances of whole packs.
struct NormWork {
  const void* input;
  const void* residual;  // or null
  void* residual_output;
  const void* gamma;  // a row of the tensors' type, or of f32
  void* output;       // or null
  std::uint8_t* fp8;
  void* scales;
  const float* scale;  // fixed
  // From row to row, in packs; for e4m3 in half packs.
  std::uint64_t input_stride, residual_stride, residual_output_stride, output_stride, fp8_stride;
  std::uint64_t scale_row_stride, scale_group_stride;  // in scales
  std::uint32_t rows, row_packs;
  float inverse_columns;  // 1 / columns of a row, rounded
  float epsilon;
  bool gamma_plus_one;
  RowScaling scaling;
  bool power_of_two;  // scales are powers of two, stored as one byte
  float floor;        // the least magnitude that a scale is made for
};

// … whose blocks have roles (rms_norm_in_roles.hpp).
struct NormInRolesWork : NormWork {
  std::uint32_t warp_groups = 1;  // of each CUDA block
  std::uint32_t movers = 1;       // CUDA blocks that move packs, the first ones; the others norm rows
  std::uint32_t ahead = 0;        // packs that a thread has scattered beyond the one that it reduces
};

}  // namespace weft::detail
