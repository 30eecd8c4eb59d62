// The check of an all-reduce with residual and norm (weft/fused.hpp).
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "weft/fused.hpp"
#include "workloads/reference.hpp"

namespace weft::cli {

struct NormForm {
  bool residual = true;
  bool gamma_plus_one = false;
  std::optional<Fp8Scaling> fp8 = {};  // rows as e4m3 beside the normed ones
  ScaleType scale_type = ScaleType::f32;
};

// Residual and weights are the pattern's of two ranks more than there are, in step 0.
struct NormReferenceArgs {
  ReferenceArgs sum;
  std::size_t hidden = 0;
  float epsilon = 0;
  NormForm form = {};
  float scale = 1;  // fixed
};
// The outputs of a call, row after row; the last two where its form has them.
struct NormOutputs {
  std::span<const std::byte> residual, normed, fp8 = {}, scales = {};
};

// Empty when `got` is right. The residual has the oracle's bits, and normed rows are within two units in the last place
// of the oracle's. e4m3 and scales have the bits that the oracle makes of those normed rows.
std::string compare_norm(const NormReferenceArgs& args, std::span<const std::byte> sum, const NormOutputs& got);

}  // namespace weft::cli
