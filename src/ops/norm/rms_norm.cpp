// all_reduce_rms_norm.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <iterator>
#include <numeric>
#include <string>

#include "base/choices.hpp"
#include "base/fingerprint.hpp"
#include "base/nvtx.hpp"
#include "comm/call.hpp"
#include "ops/norm/norm_kernels.hpp"
#include "ops/norm/norm_steps.hpp"
#include "weft/fused.hpp"
#include "weft/moe.hpp"

namespace weft {
namespace {

using detail::Extent;
using detail::GroupState;
using detail::require;

constexpr std::size_t kElement = 2, kPackElements = sizeof(detail::Pack) / kElement;

detail::RowScaling scaling_of(const AllReduceRmsNormArgs& args) {
  if (args.fp8.rows == nullptr) return detail::RowScaling::none;
  switch (args.fp8.scaling) {
    case Fp8Scaling::fixed:
      return detail::RowScaling::fixed;
    case Fp8Scaling::per_token:
      return detail::RowScaling::per_token;
    default:
      return detail::RowScaling::per_group;
  }
}

bool makes_scales(const AllReduceRmsNormArgs& args) {
  return args.fp8.rows != nullptr && args.fp8.scaling != Fp8Scaling::fixed;
}

std::size_t groups_of(const AllReduceRmsNormArgs& args) {
  return args.fp8.scaling == Fp8Scaling::per_128_columns ? args.hidden / kScaleColumns : 1;
}

// Of the scales that are made.
struct ScaleStrides {
  std::size_t token, group;
};
ScaleStrides scale_strides(const AllReduceRmsNormArgs& args) {
  return {.token = args.fp8.scale_token_stride != 0 ? args.fp8.scale_token_stride : groups_of(args),
          .group = args.fp8.scale_group_stride != 0 ? args.fp8.scale_group_stride : 1};
}

void check_tensor(const GroupState& group, const AllReduceRmsNormArgs& args, const char* name, const void* data,
                  std::size_t stride) {
  const std::size_t bytes = (stride != 0 ? stride : args.hidden) * kElement;
  require(stride % kPackElements == 0, "{}_stride: {} elements from row to row are not a multiple of {}", name, stride,
          kPackElements);
  detail::check_extent(group, {name, data, args.tokens, args.hidden * kElement, bytes, sizeof(detail::Pack)});
}

void check_fp8(const GroupState& group, const AllReduceRmsNormArgs& args) {
  const Fp8Output& fp8 = args.fp8;
  detail::check_choice("fp8.scaling", fp8.scaling, Fp8Scaling::per_128_columns);
  require(fp8.scale_type <= ScaleType::ue8m0, "fp8.scale_type: {} is not f32 or ue8m0",
          static_cast<int>(fp8.scale_type));
  require(fp8.stride % 8 == 0, "fp8.stride: {} bytes from row to row are not a multiple of 8", fp8.stride);
  const std::size_t stride = fp8.stride != 0 ? fp8.stride : args.hidden;
  require(stride >= args.hidden, "fp8.stride: {} bytes from row to row are less than the {} bytes of a row", stride,
          args.hidden);
  detail::check_extent(group, {"fp8.rows", fp8.rows, args.tokens, args.hidden, stride, 8});
  const auto check_scales = [&](const char* name, const void* data, std::size_t alignment) {
    require(data != nullptr, "{}: null, with scaling {}", name, weft::name(fp8.scaling));
    require(reinterpret_cast<std::uintptr_t>(data) % alignment == 0, "{}: {} is not aligned to {} bytes", name, data,
            alignment);
    detail::check_buffer(group, name, data);
  };
  if (fp8.scaling == Fp8Scaling::fixed) return check_scales("fp8.scale", fp8.scale, alignof(float));
  check_scales("fp8.scales", fp8.scales, fp8.scale_type == ScaleType::f32 ? alignof(float) : 1);
  require(fp8.scaling == Fp8Scaling::per_token || args.hidden % kScaleColumns == 0,
          "hidden: {} is not a multiple of {}, and scales are per 128 columns", args.hidden, kScaleColumns);
  constexpr std::size_t most = std::size_t{1} << 40;
  const ScaleStrides strides = scale_strides(args);
  require(strides.token <= most / std::max<std::size_t>(args.tokens, 1) && strides.group <= most / groups_of(args),
          "fp8.scale_token_stride, scale_group_stride: {} and {} lead past 2^40 scales", fp8.scale_token_stride,
          fp8.scale_group_stride);
  // As many rows and groups apart, two scales have one place.
  const std::size_t common = std::gcd(strides.token, strides.group);
  require(strides.group / common >= args.tokens || strides.token / common >= groups_of(args),
          "fp8.scale_token_stride, scale_group_stride: {} and {} put several scales in one place",
          fp8.scale_token_stride, fp8.scale_group_stride);
}

// Whatever is written shares no byte with anything else, but for the two pairs that may be one tensor.
void check_overlaps(const AllReduceRmsNormArgs& args) {
  const auto extent = [&](const char* name, const void* data, std::size_t stride) {
    return Extent{name, data, args.tokens, args.hidden * kElement, (stride != 0 ? stride : args.hidden) * kElement};
  };
  // In one stretch.
  const auto whole = [](const char* name, const void* data, std::size_t bytes) {
    return Extent{name, data, 1, bytes, bytes};
  };
  const Fp8Output& fp8 = args.fp8;
  const ScaleStrides strides = scale_strides(args);
  const std::size_t scales =
      args.tokens == 0 ? 0 : (args.tokens - 1) * strides.token + (groups_of(args) - 1) * strides.group + 1;
  const Extent written[] = {
      extent("output", args.output, args.output_stride),
      extent("residual_output", args.residual_output, args.residual_output_stride),
      {"fp8.rows", fp8.rows, args.tokens, args.hidden, fp8.stride != 0 ? fp8.stride : args.hidden},
      whole("fp8.scales", makes_scales(args) ? fp8.scales : nullptr,
            scales * (fp8.scale_type == ScaleType::f32 ? sizeof(float) : 1))};
  const bool scaled = fp8.rows != nullptr && fp8.scaling == Fp8Scaling::fixed;
  const Extent read[] = {extent("input", args.input, args.input_stride),
                         extent("residual", args.residual, args.residual_stride),
                         whole("gamma", args.gamma, args.hidden * kElement),
                         whole("fp8.scale", scaled ? fp8.scale : nullptr, sizeof(float))};
  const auto apart = [](const Extent& a, const Extent& b, std::size_t place) {
    if (a.data != nullptr && b.data != nullptr) detail::check_overlap(a, b, place);
  };
  constexpr std::size_t in_place = 2;  // the first pairs
  for (std::size_t i = 0; i < std::size(written); ++i) {
    for (std::size_t r = 0; r < std::size(read); ++r)
      apart(written[i], read[r], i == r && i < in_place ? 0 : detail::kNowhere);
    for (std::size_t other = i + 1; other < std::size(written); ++other)
      apart(written[i], written[other], detail::kNowhere);
  }
}

void check_arguments(const GroupState& group, const AllReduceRmsNormArgs& args) {
  require(args.type == DataType::bf16 || args.type == DataType::f16, "type: {} is neither bf16 nor f16",
          args.type <= DataType::i32 ? std::string(name(args.type)) : std::to_string(static_cast<int>(args.type)));
  require(args.algorithm <= Algorithm::two_shot, "algorithm: {} is not automatic, one-shot or two-shot",
          args.algorithm <= Algorithm::multimem_two_shot ? std::string(name(args.algorithm))
                                                         : std::to_string(static_cast<int>(args.algorithm)));
  constexpr std::size_t most_hidden = detail::kMostRowPacks * kPackElements;
  require(args.hidden != 0 && args.hidden % kPackElements == 0 && args.hidden <= most_hidden,
          "hidden: {} is not a multiple of {} between {} and {}", args.hidden, kPackElements, kPackElements,
          most_hidden);
  require(args.tokens <= std::size_t{1} << 31, "tokens: {} is not between 0 and 2^31", args.tokens);
  require(args.epsilon >= 0.0f && args.epsilon <= 1e30f, "epsilon: {} is not a number between 0 and 1e30",
          args.epsilon);
  const auto size = static_cast<std::uint32_t>(group.size());
  const std::uint32_t lean_size = detail::has_lean_norm(args.type, size) ? size : 0;
  detail::check_launch(group, args.launch, detail::max_norm_threads(Algorithm::one_shot, lean_size));
  group.communicator().fabric().check_stream(args.stream);
  require(args.output != nullptr || args.fp8.rows != nullptr, "output: null, and no fp8.rows either");
  check_tensor(group, args, "input", args.input, args.input_stride);
  if (args.residual != nullptr) check_tensor(group, args, "residual", args.residual, args.residual_stride);
  check_tensor(group, args, "residual_output", args.residual_output, args.residual_output_stride);
  if (args.output != nullptr) check_tensor(group, args, "output", args.output, args.output_stride);
  detail::check_extent(group,
                       {"gamma", args.gamma, 1, args.hidden * kElement, args.hidden * kElement, sizeof(detail::Pack)});
  if (args.fp8.rows != nullptr) check_fp8(group, args);
  check_overlaps(args);
}

detail::NormWork work_of(const AllReduceRmsNormArgs& args) {
  const std::size_t row_packs = args.hidden / kPackElements;
  // Rows of a tensor that is not there are nowhere: kernels find the place of a row before they ask whether there is
  // one.
  const auto packs = [&](const void* tensor, std::size_t stride) {
    if (tensor == nullptr) return std::size_t{0};
    return stride != 0 ? stride / kPackElements : row_packs;
  };
  const Fp8Output& fp8 = args.fp8;
  return {.input = args.input,
          .residual = args.residual,
          .residual_output = args.residual_output,
          .gamma = args.gamma,
          .output = args.output,
          .fp8 = static_cast<std::uint8_t*>(fp8.rows),
          .scales = fp8.scales,
          .scale = fp8.scale,
          .input_stride = packs(args.input, args.input_stride),
          .residual_stride = packs(args.residual, args.residual_stride),
          .residual_output_stride = packs(args.residual_output, args.residual_output_stride),
          .output_stride = packs(args.output, args.output_stride),
          .fp8_stride = fp8.rows == nullptr ? 0 : (fp8.stride != 0 ? fp8.stride : args.hidden) / 8,
          .scale_row_stride = scale_strides(args).token,
          .scale_group_stride = scale_strides(args).group,
          .rows = static_cast<std::uint32_t>(args.tokens),
          .row_packs = static_cast<std::uint32_t>(row_packs),
          .inverse_columns = 1.0f / static_cast<float>(args.hidden),
          .epsilon = args.epsilon,
          .gamma_plus_one = args.gamma_plus_one,
          .scaling = scaling_of(args),
          .power_of_two = fp8.scale_type == ScaleType::ue8m0};
}

}  // namespace

static void make_all_reduce_rms_norm(const Group& handle, const AllReduceRmsNormArgs& args) {
  GroupState& group = handle.state();
  check_arguments(group, args);
  detail::check_ready(handle, "all_reduce_rms_norm");
  const detail::NormWork work = work_of(args);
  const auto size = static_cast<std::uint32_t>(group.size());
  const detail::NormPlan plan = detail::plan_norm({.device = handle.device(),
                                                   .size = size,
                                                   .layout = group.layout(),
                                                   .type = args.type,
                                                   .rows = args.tokens,
                                                   .row_packs = work.row_packs,
                                                   .wish = args.algorithm,
                                                   .launch = args.launch,
                                                   .max_blocks = group.communicator().max_blocks(),
                                                   .steps = group.tuning().table->steps});
  const ScaleType scales = makes_scales(args) ? args.fp8.scale_type : ScaleType::f32;
  const detail::CallName name{
      detail::fingerprint("all_reduce_rms_norm", args.type, args.tokens, args.hidden, plan.algorithm, plan.piece_rows,
                          plan.piece_packs, std::bit_cast<std::uint32_t>(args.epsilon), args.gamma_plus_one,
                          args.residual != nullptr, work.scaling, scales, args.tag),
      fmt::format("all_reduce_rms_norm {}[{}, {}] {}{} tag {}", weft::name(args.type), args.tokens, args.hidden,
                  weft::name(plan.algorithm),
                  args.fp8.rows != nullptr ? fmt::format(" fp8 {}{}", weft::name(args.fp8.scaling),
                                                         scales == ScaleType::ue8m0 ? " ue8m0" : "")
                                           : "",
                  args.tag)};
  group.remember(name);
  const auto run = [&](const detail::BoundKernel& bound, int blocks, int threads) {
    detail::run_or_keep(handle, {.call = group.call(name.fingerprint),
                                 .bound = bound,
                                 .blocks = blocks,
                                 .threads = threads,
                                 .stream = args.stream});
  };
  const bool by_pieces = plan.piece_packs != work.row_packs;  // these are not normed, and so not cast
  const auto fused =
      detail::find_kernel(detail::FusedNormQuery{.type = args.type,
                                                 .size = size,
                                                 .algorithm = plan.algorithm,
                                                 .casts = !by_pieces && work.scaling != detail::RowScaling::none,
                                                 .keeps_own = plan.keeps_own});
  const auto reduce = [&](const detail::NormWork& part) { run(fused.with(part), plan.blocks, plan.threads); };
  if (!by_pieces) {
    std::size_t done = 0;
    do {
      const std::size_t rows = std::min<std::size_t>(args.tokens - done, plan.piece_rows);
      reduce(detail::rows_of(work, done, rows));
      done += rows;
    } while (done < args.tokens);
  } else {
    const detail::NormSteps steps(work, plan.piece_packs);
    for (std::uint64_t i = 0; i < steps.sums(); ++i) reduce(steps.sum(i));
    const auto norm = detail::find_kernel(detail::NormRowsQuery{.type = args.type});
    run(norm.with(steps.norm()), plan.norm_blocks, plan.norm_threads);
  }
}

void all_reduce_rms_norm(const Group& caller, const AllReduceRmsNormArgs& args) {
  const detail::NvtxRange range("weft::all_reduce_rms_norm");
  const Group handle = detail::held(caller);
  detail::make_or_tell(handle.state(), args.stream, [&] { make_all_reduce_rms_norm(handle, args); });
}

}  // namespace weft
