// all_reduce_rms_norm.
#include "weft/fused.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <string>

#include "base/fingerprint.hpp"
#include "comm/call.hpp"
#include "ops/norm/norm_arguments.hpp"
#include "ops/norm/norm_kernels.hpp"
#include "ops/norm/norm_steps.hpp"

namespace weft {
namespace {

using detail::GroupState;
using detail::require;

detail::NormArguments arguments_of(const AllReduceRmsNormArgs& args) {
  return {.hidden = args.hidden,
          .type = args.type,
          .epsilon = args.epsilon,
          .gamma_plus_one = args.gamma_plus_one,
          .gamma_f32 = args.gamma_f32,
          .gamma = args.gamma,
          .input = {"input", args.input, args.tokens, args.input_stride},
          .residual = {"residual", args.residual, args.tokens, args.residual_stride},
          .residual_output = {"residual_output", args.residual_output, args.tokens, args.residual_output_stride},
          .output = {"output", args.output, args.tokens, args.output_stride},
          .fp8 = args.fp8,
          .output_in_place = true};
}

void check_arguments(const GroupState& group, const AllReduceRmsNormArgs& args) {
  const detail::NormArguments arguments = arguments_of(args);
  detail::check_norm_type(arguments);
  if (args.algorithm > Algorithm::two_shot) {
    require(false, "algorithm: {} is not automatic, one-shot or two-shot",
            detail::name_or_number(args.algorithm, Algorithm::multimem_two_shot));
  }
  require(args.tokens <= std::size_t{1} << 31, "tokens: {} is not between 0 and 2^31", args.tokens);
  detail::check_norm_values(arguments);
  const auto size = static_cast<std::uint32_t>(group.size());
  const std::uint32_t specialized_size = detail::has_specialized_norm(args.type, size, args.gamma_f32) ? size : 0;
  detail::check_launch(group, args.launch, detail::max_norm_threads(Algorithm::one_shot, specialized_size));
  group.communicator().fabric().check_stream(args.stream);
  detail::check_norm_tensors(group, arguments);
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
    return fmt::format("all_reduce_rms_norm {}[{}, {}] {}{} tag {}", name(type), tokens, hidden, name(algorithm),
                       casts ? detail::words_of_cast(scaling, scales) : "", tag);
  }
};

class AllReduceRmsNorm : public detail::GroupCall {
 public:
  static constexpr const char* kRange = "weft::all_reduce_rms_norm";
  AllReduceRmsNorm(const Group& caller, const AllReduceRmsNormArgs& args)
      : GroupCall(caller, args.stream, args.launch), args_(args) {}

  void check() const { check_arguments(channel(), args_); }

  detail::CallName plan(bool) {
    const GroupState& group = channel();
    work_ = work_of(arguments_of(args_));
    work_.rows = static_cast<std::uint32_t>(args_.tokens);
    plan_ = detail::plan_norm({.device = group.communicator().fabric().device(),
                               .size = static_cast<std::uint32_t>(group.size()),
                               .layout = group.layout(),
                               .type = args_.type,
                               .rows = args_.tokens,
                               .row_packs = work_.row_packs,
                               .requested = args_.algorithm,
                               .gamma_f32 = args_.gamma_f32,
                               .launch = args_.launch,
                               .max_blocks = group.communicator().max_blocks(args_.launch),
                               .steps = group.tuning(detail::TunedOperation::all_reduce_rms_norm).table->steps});
    const detail::MadeScales scales = detail::made_scales(args_.fp8);
    return {detail::fingerprint("all_reduce_rms_norm", args_.type, args_.tokens, args_.hidden, plan_.algorithm,
                                plan_.piece_rows, plan_.piece_packs, std::bit_cast<std::uint32_t>(args_.epsilon),
                                args_.gamma_plus_one, args_.gamma_f32, args_.residual != nullptr, work_.scaling,
                                scales.type, scales.floor, args_.tag),
            NormWords{.type = args_.type,
                      .algorithm = plan_.algorithm,
                      .casts = args_.fp8.rows != nullptr,
                      .scaling = args_.fp8.scaling,
                      .scales = scales.type,
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
                                                   .keeps_own = plan_.keeps_own,
                                                   .gamma_f32 = args_.gamma_f32});
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
         .bound = detail::find_kernel(detail::NormRowsQuery{.type = args_.type, .gamma_f32 = args_.gamma_f32})
                      .with(steps.norm()),
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
