// The expected outputs of an all-reduce with residual and norm (weft/fused.hpp).
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
  std::optional<Fp8Scaling> fp8 = {};  // also writes the normed rows as e4m3
  ScaleType scale_type = ScaleType::f32;
};

// Residual and weights are the pattern's values for two more ranks than there are, in step 0.
struct NormReferenceArgs {
  ReferenceArgs sum;
  std::size_t hidden = 0;
  float epsilon = 0;
  NormForm form = {};
  float scale = 1;  // for a fixed scale
};
// Outputs of a call, row after row; the last two only if its form has them. `normed` is empty if the call only casts.
struct NormOutputs {
  std::span<const std::byte> residual, normed, fp8 = {}, scales = {};
  std::size_t residual_row = 0;  // the residual's first row is this one: others have the rest
};

// Empty if `got` is right: the residual bit for bit, and normed rows within two units in the last place of the
// oracle's. E4m3 rows and their scales are bit for bit what the oracle makes of those normed rows, or of its own.
std::string compare_norm(const NormReferenceArgs& args, std::span<const std::byte> sum, const NormOutputs& got);

}  // namespace weft::cli
