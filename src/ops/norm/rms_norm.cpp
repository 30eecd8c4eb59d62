// all_reduce_rms_norm.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <iterator>
#include <numeric>
#include <string>

#include "base/enum_text.hpp"
#include "base/fingerprint.hpp"
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

// Strides of the scales that are made.
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
  // Two scales that are this many rows and groups apart would share one place.
  const std::size_t common = std::gcd(strides.token, strides.group);
  require(strides.group / common >= args.tokens || strides.token / common >= groups_of(args),
          "fp8.scale_token_stride, scale_group_stride: {} and {} put several scales in one place",
          fp8.scale_token_stride, fp8.scale_group_stride);
}

// No output shares a byte with any other tensor. The two pairs that may be one tensor are the exception.
void check_overlaps(const AllReduceRmsNormArgs& args) {
  const auto extent = [&](const char* name, const void* data, std::size_t stride) {
    return Extent{name, data, args.tokens, args.hidden * kElement, (stride != 0 ? stride : args.hidden) * kElement};
  };
  // A tensor in one stretch.
  const auto aligned16 = [](const char* name, const void* data, std::size_t bytes) {
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
      aligned16("fp8.scales", makes_scales(args) ? fp8.scales : nullptr,
                scales * (fp8.scale_type == ScaleType::f32 ? sizeof(float) : 1))};
  const bool scaled = fp8.rows != nullptr && fp8.scaling == Fp8Scaling::fixed;
  const Extent read[] = {extent("input", args.input, args.input_stride),
                         extent("residual", args.residual, args.residual_stride),
                         aligned16("gamma", args.gamma, args.hidden * kElement),
                         aligned16("fp8.scale", scaled ? fp8.scale : nullptr, sizeof(float))};
  const auto apart = [](const Extent& a, const Extent& b, std::size_t place) {
    if (a.data != nullptr && b.data != nullptr) detail::check_overlap(a, b, place);
  };
  constexpr std::size_t in_place = 2;  // the first two pairs
  for (std::size_t i = 0; i < std::size(written); ++i) {
    for (std::size_t r = 0; r < std::size(read); ++r)
      apart(written[i], read[r], i == r && i < in_place ? 0 : detail::kNowhere);
    for (std::size_t other = i + 1; other < std::size(written); ++other)
      apart(written[i], written[other], detail::kNowhere);
  }
}

template <class Enum>
std::string name_or_number(Enum value, Enum last) {
  return value <= last ? std::string(name(value)) : std::to_string(static_cast<int>(value));
}

void check_arguments(const GroupState& group, const AllReduceRmsNormArgs& args) {
  const bool half = args.type == DataType::bf16 || args.type == DataType::f16;
  if (!half) require(false, "type: {} is neither bf16 nor f16", name_or_number(args.type, DataType::u8));
  if (args.algorithm > Algorithm::two_shot) {
    require(false, "algorithm: {} is not automatic, one-shot or two-shot",
            name_or_number(args.algorithm, Algorithm::multimem_two_shot));
  }
  constexpr std::size_t most_hidden = detail::kMostRowPacks * kPackElements;
  require(args.hidden != 0 && args.hidden % kPackElements == 0 && args.hidden <= most_hidden,
          "hidden: {} is not a multiple of {} between {} and {}", args.hidden, kPackElements, kPackElements,
          most_hidden);
  require(args.tokens <= std::size_t{1} << 31, "tokens: {} is not between 0 and 2^31", args.tokens);
  require(args.epsilon >= 0.0f && args.epsilon <= 1e30f, "epsilon: {} is not a number between 0 and 1e30",
          args.epsilon);
  const auto size = static_cast<std::uint32_t>(group.size());
  const std::uint32_t specialized_size = detail::has_specialized_norm(args.type, size) ? size : 0;
  detail::check_launch(group, args.launch, detail::max_norm_threads(Algorithm::one_shot, specialized_size));
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
  // A null tensor has stride 0: kernels compute the place of a row before they ask whether the tensor exists.
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

struct NormWords {
  static constexpr std::string_view kKind = "all_reduce_rms_norm";
  DataType type;
  Algorithm algorithm;
  bool casts;
  Fp8Scaling scaling;
  ScaleType scales;
  std::uint32_t tag;
  std::uint64_t tokens, hidden;
  std::string text() const {
    const std::string fp8 =
        casts ? fmt::format(" fp8 {}{}", name(scaling), scales == ScaleType::ue8m0 ? " ue8m0" : "") : "";
    return fmt::format("all_reduce_rms_norm {}[{}, {}] {}{} tag {}", name(type), tokens, hidden, name(algorithm), fp8,
                       tag);
  }
};

class AllReduceRmsNorm : public detail::GroupCall {
 public:
  static constexpr const char* kRange = "weft::all_reduce_rms_norm";
  AllReduceRmsNorm(const Group& caller, const AllReduceRmsNormArgs& args)
      : GroupCall(caller, args.stream), args_(args) {}

  void check() const { check_arguments(channel(), args_); }

  detail::CallName plan(bool) {
    const GroupState& group = channel();
    work_ = work_of(args_);
    plan_ = detail::plan_norm({.device = group.communicator().fabric().device(),
                               .size = static_cast<std::uint32_t>(group.size()),
                               .layout = group.layout(),
                               .type = args_.type,
                               .rows = args_.tokens,
                               .row_packs = work_.row_packs,
                               .requested = args_.algorithm,
                               .launch = args_.launch,
                               .max_blocks = group.communicator().max_blocks(),
                               .steps = group.tuning(detail::TunedOperation::all_reduce_rms_norm).table->steps});
    const ScaleType scales = makes_scales(args_) ? args_.fp8.scale_type : ScaleType::f32;
    return {detail::fingerprint("all_reduce_rms_norm", args_.type, args_.tokens, args_.hidden, plan_.algorithm,
                                plan_.piece_rows, plan_.piece_packs, std::bit_cast<std::uint32_t>(args_.epsilon),
                                args_.gamma_plus_one, args_.residual != nullptr, work_.scaling, scales, args_.tag),
            NormWords{.type = args_.type,
                      .algorithm = plan_.algorithm,
                      .casts = args_.fp8.rows != nullptr,
                      .scaling = args_.fp8.scaling,
                      .scales = scales,
                      .tag = args_.tag,
                      .tokens = args_.tokens,
                      .hidden = args_.hidden}};
  }

  template <class Run>
  void each_step(Run run) const {
    const bool by_pieces = plan_.piece_packs != work_.row_packs;  // pieces are not normed, and so not cast
    const auto fused =
        detail::find_kernel(detail::FusedNormQuery{.type = args_.type,
                                                   .size = static_cast<std::uint32_t>(channel().size()),
                                                   .algorithm = plan_.algorithm,
                                                   .casts = !by_pieces && work_.scaling != detail::RowScaling::none,
                                                   .keeps_own = plan_.keeps_own});
    const auto reduce = [&](const detail::NormWork& part) {
      if (plan_.movers != 0) return run(in_roles(part));
      run({.call = {}, .bound = fused.with(part), .blocks = plan_.blocks, .threads = plan_.threads});
    };
    if (!by_pieces) {
      std::size_t done = 0;
      do {
        const std::size_t rows = std::min<std::size_t>(args_.tokens - done, plan_.piece_rows);
        reduce(detail::rows_of(work_, done, rows));
        done += rows;
      } while (done < args_.tokens);
      return;
    }
    const detail::NormSteps steps(work_, plan_.piece_packs);
    for (std::uint64_t i = 0; i < steps.sums(); ++i) reduce(steps.sum(i));
    run({.call = {},
         .bound = detail::find_kernel(detail::NormRowsQuery{.type = args_.type}).with(steps.norm()),
         .blocks = plan_.norm_blocks,
         .threads = plan_.norm_threads});
  }

 private:
  detail::KernelCall in_roles(const detail::NormWork& rows) const {
    detail::NormInRolesWork work{rows};
    work.warp_groups = static_cast<std::uint32_t>(plan_.warp_groups);
    work.movers = static_cast<std::uint32_t>(plan_.movers);
    work.ahead = detail::kNormPacksAhead;
    const detail::NormInRolesQuery query{.casts = rows.scaling != detail::RowScaling::none};
    return {
        .call = {}, .bound = detail::find_kernel(query).with(work), .blocks = plan_.blocks, .threads = plan_.threads};
  }

  const AllReduceRmsNormArgs& args_;
  detail::NormWork work_{};
  detail::NormPlan plan_{};
};

}  // namespace

void all_reduce_rms_norm(const Group& caller, const AllReduceRmsNormArgs& args) {
  AllReduceRmsNorm call(caller, args);
  detail::make_call(call);
}

}  // namespace weft
