// Common parts of calls with a norm: their arguments, the checks of them, and the kernels' arguments that follow.
// The checks throw Errc::invalid_argument with the argument's name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

#include "base/enum_text.hpp"
#include "comm/arguments.hpp"
#include "ops/norm/norm_work.hpp"
#include "weft/fused.hpp"

namespace weft::detail {

// Rows of `hidden` elements; the stride in elements, 0 if they lie side by side.
struct NormTensor {
  const char* name;
  const void* data;
  std::size_t rows, stride;
};
struct NormArguments {
  std::size_t hidden;
  DataType type;
  float epsilon;
  bool gamma_plus_one, gamma_f32;
  const void* gamma;
  NormTensor input, residual, residual_output, output;  // e4m3 rows are as many as the output's
  Fp8Output fp8;
  bool output_in_place;  // the output may be the input; the new residual may always be the residual
};

void check_norm_type(const NormArguments& args);
// The row's width, and ε.
void check_norm_values(const NormArguments& args);
// All tensors, scales included. No output shares a byte with any other tensor, but for those that may be in place.
void check_norm_tensors(const GroupState& group, const NormArguments& args);
// All tensors that the call writes.
struct NormOutputs {
  Extent extent[4];
};
NormOutputs outputs_of(const NormArguments& args);

bool makes_scales(const Fp8Output& fp8);
// Ranks compare this of the scales that they make. It is the same for all who make none.
struct MadeScales {
  ScaleType type = ScaleType::f32;
  std::uint32_t floor = 0;  // its bits
};
MadeScales made_scales(const Fp8Output& fp8);
std::string words_of_cast(Fp8Scaling scaling, ScaleType scales);
// `rows` is left to the caller.
NormWork work_of(const NormArguments& args);

template <class Enum>
std::string name_or_number(Enum value, Enum last) {
  return value <= last ? std::string(name(value)) : std::to_string(static_cast<int>(value));
}

}  // namespace weft::detail
