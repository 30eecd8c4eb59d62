// Grouped GEMMs of a layer in plain loops on the GPU, with the weights of layer_weight().
#pragma once

#include <cstdint>

#include "weft/moe_layer.hpp"

namespace weft::test {

struct PlainGemm {
  ExpertGemm gemm;
  std::uint32_t first_global;  // of the rank's experts, which are neighbours
  RowCast cast;                // of the input
  ScaleOrder order;
  std::uint32_t rows;  // of all experts
};
void enqueue(const PlainGemm& gemm);
// As load_test_kernels() and launch_test_kernels() (gpu/support/kernels.hpp), which call them.
void load_plain_gemm();
void launch_plain_gemm();

}  // namespace weft::test
