#include "ops/norm/norm_arguments.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <iterator>
#include <numeric>

#include "ops/norm/norm_steps.hpp"
#include "weft/types.hpp"

namespace weft::detail {
namespace {

constexpr std::size_t kElement = 2, kPackElements = sizeof(Pack) / kElement;

RowScaling scaling_of(const Fp8Output& fp8) {
  if (fp8.rows == nullptr) return RowScaling::none;
  switch (fp8.scaling) {
    case Fp8Scaling::fixed:
      return RowScaling::fixed;
    case Fp8Scaling::per_token:
      return RowScaling::per_token;
    default:
      return RowScaling::per_group;
  }
}

std::size_t groups_of(const NormArguments& args) {
  return args.fp8.scaling == Fp8Scaling::per_128_columns ? args.hidden / kScaleColumns : 1;
}

// Strides of the scales that are made.
struct ScaleStrides {
  std::size_t token, group;
};
ScaleStrides scale_strides(const NormArguments& args) {
  return {.token = args.fp8.scale_token_stride != 0 ? args.fp8.scale_token_stride : groups_of(args),
          .group = args.fp8.scale_group_stride != 0 ? args.fp8.scale_group_stride : 1};
}

Extent tensor_extent(const NormArguments& args, const NormTensor& tensor) {
  return {tensor.name,
          tensor.data,
          tensor.rows,
          args.hidden * kElement,
          (tensor.stride != 0 ? tensor.stride : args.hidden) * kElement,
          sizeof(Pack)};
}
Extent fp8_extent(const NormArguments& args) {
  const Fp8Output& fp8 = args.fp8;
  return {"fp8.rows", fp8.rows, args.output.rows, args.hidden, fp8.stride != 0 ? fp8.stride : args.hidden, 8};
}
std::size_t gamma_bytes(const NormArguments& args) {
  return args.hidden * (args.gamma_f32 ? sizeof(float) : kElement);
}
// A tensor in one stretch.
Extent stretch(const char* name, const void* data, std::size_t bytes) {
  return {name, data, 1, bytes, bytes};
}
Extent scales_extent(const NormArguments& args) {
  const ScaleStrides strides = scale_strides(args);
  const std::size_t rows = args.output.rows;
  const std::size_t scales = rows == 0 ? 0 : (rows - 1) * strides.token + (groups_of(args) - 1) * strides.group + 1;
  return stretch("fp8.scales", makes_scales(args.fp8) ? args.fp8.scales : nullptr,
                 scales * (args.fp8.scale_type == ScaleType::f32 ? sizeof(float) : 1));
}

void check_tensor(const GroupState& group, const NormArguments& args, const NormTensor& tensor) {
  require(tensor.stride % kPackElements == 0, "{}_stride: {} elements from row to row are not a multiple of {}",
          tensor.name, tensor.stride, kPackElements);
  check_extent(group, tensor_extent(args, tensor));
}

void check_fp8(const GroupState& group, const NormArguments& args) {
  const Fp8Output& fp8 = args.fp8;
  check_choice("fp8.scaling", fp8.scaling, Fp8Scaling::per_128_columns);
  require(fp8.scale_type <= ScaleType::ue8m0, "fp8.scale_type: {} is not f32 or ue8m0",
          static_cast<int>(fp8.scale_type));
  require(fp8.floor >= 1e-30f && fp8.floor <= 448.0f, "fp8.floor: {} is not a number between 1e-30 and 448", fp8.floor);
  require(fp8.stride % 8 == 0, "fp8.stride: {} bytes from row to row are not a multiple of 8", fp8.stride);
  const std::size_t stride = fp8.stride != 0 ? fp8.stride : args.hidden;
  require(stride >= args.hidden, "fp8.stride: {} bytes from row to row are less than the {} bytes of a row", stride,
          args.hidden);
  check_extent(group, fp8_extent(args));
  const std::size_t rows = args.output.rows;
  const auto check_scales = [&](const char* name, const void* data, std::size_t alignment) {
    require(data != nullptr, "{}: null, with scaling {}", name, weft::name(fp8.scaling));
    check_aligned(name, data, alignment);
    check_buffer(group, name, data);
  };
  if (fp8.scaling == Fp8Scaling::fixed) return check_scales("fp8.scale", fp8.scale, alignof(float));
  if (rows != 0) check_scales("fp8.scales", fp8.scales, fp8.scale_type == ScaleType::f32 ? alignof(float) : 1);
  require(fp8.scaling == Fp8Scaling::per_token || args.hidden % kScaleColumns == 0,
          "hidden: {} is not a multiple of {}, and scales are per 128 columns", args.hidden, kScaleColumns);
  constexpr std::size_t most = std::size_t{1} << 40;
  const ScaleStrides strides = scale_strides(args);
  require(strides.token <= most / std::max<std::size_t>(rows, 1) && strides.group <= most / groups_of(args),
          "fp8.scale_token_stride, scale_group_stride: {} and {} lead past 2^40 scales", fp8.scale_token_stride,
          fp8.scale_group_stride);
  // Two scales that are this many rows and groups apart would share one place.
  const std::size_t common = std::gcd(strides.token, strides.group);
  require(strides.group / common >= rows || strides.token / common >= groups_of(args),
          "fp8.scale_token_stride, scale_group_stride: {} and {} put several scales in one place",
          fp8.scale_token_stride, fp8.scale_group_stride);
}

void check_overlaps(const NormArguments& args) {
  const bool scaled = args.fp8.rows != nullptr && args.fp8.scaling == Fp8Scaling::fixed;
  const NormOutputs outputs = outputs_of(args);
  const auto& written = outputs.extent;
  const Extent read[] = {tensor_extent(args, args.input), tensor_extent(args, args.residual),
                         stretch("gamma", args.gamma, gamma_bytes(args)),
                         stretch("fp8.scale", scaled ? args.fp8.scale : nullptr, sizeof(float))};
  const auto apart = [](const Extent& a, const Extent& b, std::size_t place) {
    if (a.data != nullptr && b.data != nullptr) check_overlap(a, b, place);
  };
  const auto in_place = [&](std::size_t i, std::size_t r) {
    return i == r && (i == 1 || (i == 0 && args.output_in_place));
  };
  for (std::size_t i = 0; i < std::size(written); ++i) {
    for (std::size_t r = 0; r < std::size(read); ++r) apart(written[i], read[r], in_place(i, r) ? 0 : kNowhere);
    for (std::size_t other = i + 1; other < std::size(written); ++other) apart(written[i], written[other], kNowhere);
  }
}

}  // namespace

void check_norm_type(const NormArguments& args) {
  const bool half = args.type == DataType::bf16 || args.type == DataType::f16;
  if (!half) require(false, "type: {} is neither bf16 nor f16", name_or_number(args.type, DataType::u8));
}

void check_norm_values(const NormArguments& args) {
  constexpr std::size_t most_hidden = kMostRowPacks * kPackElements;
  require(args.hidden != 0 && args.hidden % kPackElements == 0 && args.hidden <= most_hidden,
          "hidden: {} is not a multiple of {} between {} and {}", args.hidden, kPackElements, kPackElements,
          most_hidden);
  require(args.epsilon >= 0.0f && args.epsilon <= 1e30f, "epsilon: {} is not a number between 0 and 1e30",
          args.epsilon);
}

void check_norm_tensors(const GroupState& group, const NormArguments& args) {
  require(args.output.rows == 0 || args.output.data != nullptr || args.fp8.rows != nullptr,
          "output: null, and no fp8.rows either");
  check_tensor(group, args, args.input);
  if (args.residual.data != nullptr) check_tensor(group, args, args.residual);
  check_tensor(group, args, args.residual_output);
  if (args.output.data != nullptr) check_tensor(group, args, args.output);
  check_extent(group, {"gamma", args.gamma, 1, gamma_bytes(args), gamma_bytes(args), sizeof(Pack)});
  if (args.fp8.rows != nullptr) check_fp8(group, args);
  check_overlaps(args);
}

NormOutputs outputs_of(const NormArguments& args) {
  return {{tensor_extent(args, args.output), tensor_extent(args, args.residual_output), fp8_extent(args),
           scales_extent(args)}};
}

bool makes_scales(const Fp8Output& fp8) {
  return fp8.rows != nullptr && fp8.scaling != Fp8Scaling::fixed;
}

MadeScales made_scales(const Fp8Output& fp8) {
  if (!makes_scales(fp8)) return {};
  return {.type = fp8.scale_type, .floor = std::bit_cast<std::uint32_t>(fp8.floor)};
}

std::string words_of_cast(Fp8Scaling scaling, ScaleType scales) {
  return fmt::format(" fp8 {}{}", name(scaling), scales == ScaleType::ue8m0 ? " ue8m0" : "");
}

NormWork work_of(const NormArguments& args) {
  const std::size_t row_packs = args.hidden / kPackElements;
  // A null tensor has stride 0: kernels compute the place of a row before they ask whether the tensor exists.
  const auto packs = [&](const NormTensor& tensor) {
    if (tensor.data == nullptr) return std::size_t{0};
    return tensor.stride != 0 ? tensor.stride / kPackElements : row_packs;
  };
  const Fp8Output& fp8 = args.fp8;
  return {.input = args.input.data,
          .residual = args.residual.data,
          .residual_output = const_cast<void*>(args.residual_output.data),
          .gamma = args.gamma,
          .output = const_cast<void*>(args.output.data),
          .fp8 = static_cast<std::uint8_t*>(fp8.rows),
          .scales = fp8.scales,
          .scale = fp8.scale,
          .input_stride = packs(args.input),
          .residual_stride = packs(args.residual),
          .residual_output_stride = packs(args.residual_output),
          .output_stride = packs(args.output),
          .fp8_stride = fp8.rows == nullptr ? 0 : (fp8.stride != 0 ? fp8.stride : args.hidden) / 8,
          .scale_row_stride = makes_scales(fp8) ? scale_strides(args).token : 0,
          .scale_group_stride = makes_scales(fp8) ? scale_strides(args).group : 0,
          .rows = 0,
          .row_packs = static_cast<std::uint32_t>(row_packs),
          .inverse_columns = 1.0f / static_cast<float>(args.hidden),
          .epsilon = args.epsilon,
          .gamma_plus_one = args.gamma_plus_one,
          .scaling = scaling_of(fp8),
          .power_of_two = fp8.scale_type == ScaleType::ue8m0,
          .floor = fp8.floor};
}

}  // namespace weft::detail
