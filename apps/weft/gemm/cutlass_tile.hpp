// Between the grouped GEMMs and CUTLASS's kernels: tables that kernels of every tile read, and the kernels of one tile.
#pragma once

#include <cuda_runtime.h>

#include <cutlass/cutlass.h>
#include <cute/tensor.hpp>
#include <cutlass/detail/blockwise_scale_layout.hpp>
#include <cutlass/detail/layout.hpp>
#include <cutlass/gemm/group_array_problem_shape.hpp>

#include <cstddef>
#include <cstdint>

namespace weft::cli::grouped {

using Made = cutlass::bfloat16_t;
using ByRows = cutlass::layout::RowMajor;
using ByColumns = cutlass::layout::ColumnMajor;
// Rows, output columns, input columns.
using Problem = cutlass::gemm::GroupProblemShape<cute::Shape<int, int, int>>;
using Shape = Problem::UnderlyingProblemShape;
using InputStride = cute::remove_pointer_t<cutlass::detail::TagToStrideA_t<ByRows*>>;
using WeightStride = cute::remove_pointer_t<cutlass::detail::TagToStrideB_t<ByColumns*>>;
using OutputStride = cute::remove_pointer_t<cutlass::detail::TagToStrideC_t<ByRows*>>;
// CUTLASS computes the places of scales from a group's number of rows. By rows they do not depend on it.
using ScaleConfig = cutlass::detail::Sm90BlockwiseScaleConfig<1, 128, 128, cute::GMMA::Major::K, cute::GMMA::Major::MN>;
using InputScales = decltype(ScaleConfig::deduce_layoutSFA());
using WeightScales = decltype(ScaleConfig::deduce_layoutSFB());

// One GEMM's arrays by local expert, on the device. bf16 has no scales.
struct Tables {
  Shape* shapes;
  const void **input, **weights;
  Made** output;
  const float **input_scales, **weight_scales;
  InputStride* input_stride;
  WeightStride* weight_stride;
  OutputStride* output_stride;
  InputScales* input_scale_layout;
  WeightScales* weight_scale_layout;
};

struct Call {
  Tables tables{};  // of all local experts
  std::uint32_t first_expert = 0, experts = 0;
  int device = 0, processors = 0;
};

// The kernels with tiles of one size.
struct TileKernels {
  std::size_t (*workspace_bytes)(const Call& call);  // of `call`, and of calls with fewer processors
  void (*enqueue)(const Call& call, void* workspace, cudaStream_t stream);
};
extern const TileKernels kFp8Tiles64, kFp8Tiles128, kBf16Tiles64, kBf16Tiles128;  // by rows; all have 128 columns

}  // namespace weft::cli::grouped
