// gather_sums_rms_norm, scatter_sums_rms_norm.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <string>

#include "base/fingerprint.hpp"
#include "comm/call.hpp"
#include "ops/all_reduce/all_reduce_plan.hpp"
#include "ops/moves/group_moves.hpp"
#include "ops/moves/ragged.hpp"
#include "ops/norm/norm_arguments.hpp"
#include "ops/normed_crossings/normed_crossing_kernels.hpp"
#include "weft/fused.hpp"

namespace weft {
namespace {

using detail::GroupState;

constexpr const char* kNormedCrossingRanges[] = {"weft::gather_sums_rms_norm", "weft::scatter_sums_rms_norm"};
constexpr std::size_t kElement = 2;

struct NormedCrossingWords {
  static constexpr std::string_view kKind = "crossing with a norm";
  bool gathers;
  DataType type;
  bool residual, output, casts;
  Fp8Scaling scaling;
  ScaleType scales;
  std::uint32_t group_ranks, tag;
  std::uint64_t hidden;
  detail::CountsWords counts;
  std::string text() const {
    return fmt::format("{} rows of {}[{}]{}{}{} in groups of {}, {}, tag {}",
                       detail::operation_in(kNormedCrossingRanges[gathers ? 0 : 1]), name(type), hidden,
                       residual ? "" : " without a residual", casts ? detail::words_of_cast(scaling, scales) : "",
                       output ? "" : " alone", group_ranks, counts.text(), tag);
  }
};

detail::NormArguments arguments_of(const CrossingRmsNormArgs& args) {
  return {.hidden = args.hidden,
          .type = args.type,
          .epsilon = args.epsilon,
          .gamma_plus_one = args.gamma_plus_one,
          .gamma_f32 = args.gamma_f32,
          .gamma = args.gamma,
          .input = {"input", args.input, args.input_rows, args.input_stride},
          .residual = {"residual", args.residual, args.shard_rows, args.residual_stride},
          .residual_output = {"residual_output", args.residual_output, args.shard_rows, args.residual_output_stride},
          .output = {"output", args.output, args.output_rows, args.output_stride},
          .fp8 = args.fp8,
          .output_in_place = false};
}

template <bool gathers>
class NormedCrossingCall : public detail::GroupCall {
 public:
  static constexpr const char* kRange = kNormedCrossingRanges[gathers ? 0 : 1];
  static constexpr std::string_view kHint = detail::kCountsHint;
  NormedCrossingCall(const Group& caller, const CrossingRmsNormArgs& args)
      : GroupCall(caller, args.stream, args.launch), args_(args) {}

  void check() {
    const GroupState& group = channel();
    const detail::NormArguments arguments = arguments_of(args_);
    detail::check_norm_type(arguments);
    detail::check_group_ranks(group, args_.group_ranks);
    if (args_.group_ranks != 1) detail::check_group_ranks(group, args_.group_ranks, args_.counts);
    detail::check_norm_values(arguments);
    detail::check_size("input_rows", args_.input_rows);
    detail::check_size("shard_rows", args_.shard_rows);
    detail::check_size("output_rows", args_.output_rows);
    detail::check_counts(group, args_.counts);
    detail::check_launch(group, args_.launch, detail::kMoveThreads);
    group.communicator().fabric().check_stream(stream());
    work_.norm = detail::work_of(arguments);
    work_.norm.rows = 1;  // weights are loaded before the kernel knows its rows
    work_.shape = detail::shape_of(work_.norm);
    // Before tensors are compared: so many rows reach over whatever lies behind them.
    constexpr std::uint64_t most_packs = std::uint64_t{1} << 32;
    detail::require(args_.output_rows < most_packs / work_.most_row_packs(),
                    "output_rows: {} rows of {} packs are not less than 2^32 packs", args_.output_rows,
                    work_.most_row_packs());
    detail::require(args_.output != nullptr || args_.fp8.rows != nullptr,
                    "output: null, and no fp8.rows either; a rank without rows gives any other address");
    detail::check_norm_tensors(group, arguments);
    for (const detail::Extent& written : detail::outputs_of(arguments).extent)
      if (written.data != nullptr)
        detail::check_numbers_apart(args_.counts, static_cast<std::size_t>(group.size()), written);
  }

  detail::CallName plan(bool) {
    const GroupState& group = channel();
    const std::uint64_t row = std::uint64_t{work_.most_row_packs()} * sizeof(detail::Pack);
    const std::uint64_t whole_rows = gathers ? args_.output_rows : args_.input_rows;
    detail::MoveQuery query = detail::move_query_for(group, detail::TunedOperation::crossing_rms_norm, args_.type);
    query.group_ranks = args_.group_ranks;
    query.own_bytes = args_.shard_rows * row;
    query.whole_bytes = whole_rows * row;
    query.launch = args_.launch;
    query.max_blocks = group.communicator().max_blocks(args_.launch);
    plan_ = detail::plan_move(query);
    if (shards_may_flow() && !on_cpu()) plan_.warp_groups = detail::warp_groups_of(plan_.threads);
    choose_hops(detail::one_hop_packs(query));
    if (!may_flow()) widen_blocks();
    const detail::MadeScales scales = detail::made_scales(args_.fp8);
    return {detail::fingerprint(detail::name_of_operation<NormedCrossingCall>(), args_.hidden, args_.type,
                                args_.group_ranks, detail::fingerprint(args_.counts),
                                std::bit_cast<std::uint32_t>(args_.epsilon), args_.gamma_plus_one, args_.gamma_f32,
                                args_.residual != nullptr, args_.output != nullptr, work_.norm.scaling, scales.type,
                                scales.floor, args_.tag),
            NormedCrossingWords{.gathers = gathers,
                                .type = args_.type,
                                .residual = args_.residual != nullptr,
                                .output = args_.output != nullptr,
                                .casts = args_.fp8.rows != nullptr,
                                .scaling = args_.fp8.scaling,
                                .scales = scales.type,
                                .group_ranks = static_cast<std::uint32_t>(args_.group_ranks),
                                .tag = args_.tag,
                                .hidden = args_.hidden,
                                .counts = detail::words_of(args_.counts)},
            true};
  }

  template <class Run>
  void each_step(Run run) const {
    if (auto step = detail::numbers_step(channel(), args_.counts)) run(std::move(*step));
    const std::size_t own_rows = gathers ? args_.input_rows : args_.output_rows;
    const std::size_t whole_rows = gathers ? args_.output_rows : args_.input_rows;
    detail::CountedPartition shards =
        detail::counted_partition(channel(), args_.counts, false, args_.shard_rows, whole_rows);
    shards.warp_groups = static_cast<std::uint32_t>(plan_.warp_groups);
    detail::NormedCrossingWork work = work_;
    work.shards = {.partition = {.shards = shards,
                                 .group_ranks = static_cast<std::uint32_t>(args_.group_ranks),
                                 .gathers = gathers,
                                 .own_rows = own_rows},
                   .slot_packs = plan_.slot_packs,
                   .one_hop_packs = one_hop_packs_,
                   .input = args_.input,
                   .output = nullptr,
                   .row_bytes = args_.hidden * kElement,
                   .input_stride = work_.norm.input_stride * sizeof(detail::Pack),
                   .output_stride = 0};
    const detail::NormedCrossingQuery query{.type = args_.type,
                                            .size = static_cast<std::uint32_t>(channel().size()),
                                            .casts = args_.fp8.rows != nullptr,
                                            .flows = may_flow(),
                                            .gamma_f32 = args_.gamma_f32};
    run({.call = {}, .bound = find_kernel(query).with(work), .blocks = plan_.blocks, .threads = plan_.threads});
  }

 private:
  bool on_cpu() const { return channel().communicator().fabric().device() == Device::cpu; }
  // Whether counts that fit let any rank's shard flow in chunks. Then warp groups work as blocks, each with a chunk.
  bool shards_may_flow() const {
    return (gathers ? args_.output_rows : args_.input_rows) * work_.most_row_packs() > plan_.slot_packs;
  }
  // Rows that no block's threads hold take the same kernel: long ones, all of CPU ranks, whose blocks have one thread,
  // and all with γ of f32.
  bool may_flow() const {
    return args_.gamma_f32 || shards_may_flow() || work_.norm.row_packs > detail::kMostRowPacksHeld || on_cpu();
  }
  // Every rank has the same limit. Groups of one rank have one hop as it is.
  void choose_hops(std::uint64_t most_packs) {
    if (on_cpu() || args_.group_ranks == 1 || work_.norm.row_packs > detail::kMostRowPacksHeld) return;
    one_hop_packs_ = most_packs;
    const int least = threads_that_hold(detail::kMostHeldInOneHop);
    if (plan_.threads / plan_.warp_groups >= least) return;
    plan_.warp_groups = 1;
    plan_.threads = std::max(plan_.threads, least);
  }
  int threads_that_hold(std::uint32_t packs_each) const {
    return static_cast<int>(((work_.norm.row_packs + packs_each - 1) / packs_each + 31) / 32 * 32);
  }
  // A block for each row, of as many threads as hold it, and enough blocks for what is sent and received.
  void widen_blocks() {
    plan_.threads = threads_that_hold(detail::kHeldWithoutChunks);
    plan_.warp_groups = 1;
    if (args_.launch.blocks != 0) return;
    const auto each = static_cast<std::uint64_t>(plan_.threads);
    const std::uint64_t packs = std::max(args_.input_rows, args_.output_rows) * work_.most_row_packs();
    const std::uint64_t blocks = std::max<std::uint64_t>(args_.shard_rows, (packs + each - 1) / each);
    const auto most = static_cast<std::uint64_t>(std::max(channel().communicator().max_blocks(args_.launch) - 1, 1));
    plan_.blocks = detail::whole_pairs(static_cast<int>(std::clamp<std::uint64_t>(blocks, 1, most)) + 1, args_.launch);
  }

  const CrossingRmsNormArgs& args_;
  detail::NormedCrossingWork work_{};
  detail::MovePlan plan_{};
  std::uint64_t one_hop_packs_ = 0;
};

}  // namespace

void gather_sums_rms_norm(const Group& caller, const CrossingRmsNormArgs& args) {
  NormedCrossingCall<true> call(caller, args);
  detail::make_call(call);
}

void scatter_sums_rms_norm(const Group& caller, const CrossingRmsNormArgs& args) {
  NormedCrossingCall<false> call(caller, args);
  detail::make_call(call);
}

}  // namespace weft
