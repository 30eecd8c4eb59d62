#include "weft/crossings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <limits>

#include "base/enum_text.hpp"
#include "base/fingerprint.hpp"
#include "comm/call.hpp"
#include "numeric/rows.hpp"
#include "ops/all_reduce/all_reduce_plan.hpp"
#include "ops/crossings/crossing_kernels.hpp"
#include "ops/moves/group_moves.hpp"
#include "ops/moves/ragged.hpp"

namespace weft {
namespace {

using detail::Extent;
using detail::GroupState;

constexpr const char* kCrossingRanges[] = {"weft::gather_sums", "weft::scatter_sums"};

struct CrossingWords {
  static constexpr std::string_view kKind = "crossing";
  bool gathers;
  DataType type;
  std::uint32_t group_ranks, tag;
  std::uint64_t width;
  detail::CountsWords counts;
  std::string text() const {
    return fmt::format("{} rows of {}[{}] in groups of {}, {}, tag {}",
                       detail::operation_in(kCrossingRanges[gathers ? 0 : 1]), name(type), width, group_ranks,
                       counts.text(), tag);
  }
};

template <bool gathers>
class CrossingCall : public detail::GroupCall {
 public:
  static constexpr const char* kRange = kCrossingRanges[gathers ? 0 : 1];
  static constexpr std::string_view kHint = detail::kCountsHint;
  CrossingCall(const Group& caller, const CrossingArgs& args)
      : GroupCall(caller, args.stream, args.launch), args_(args) {}

  void check() {
    const GroupState& group = channel();
    detail::check_choice("type", args_.type, DataType::i32);
    detail::check_group_ranks(group, args_.group_ranks, args_.counts);
    detail::check_size("width", args_.width);
    detail::check_size("input_rows", args_.input_rows);
    detail::check_size("output_rows", args_.output_rows);
    detail::check_counts(group, args_.counts);
    detail::check_launch(group, args_.launch, detail::kMoveThreads);
    group.communicator().fabric().check_stream(stream());
    const std::size_t element = size_of(args_.type);
    input_ = detail::extent_of({"input", args_.input, args_.input_rows, args_.width, args_.input_stride, element});
    output_ = detail::extent_of({"output", args_.output, args_.output_rows, args_.width, args_.output_stride, element});
    detail::check_extent(group, input_);
    detail::check_extent(group, output_);
    detail::check_overlap(output_, input_, detail::kNowhere);
    detail::check_numbers_apart(args_.counts, static_cast<std::size_t>(group.size()), output_);
  }

  detail::CallName plan(bool) {
    const GroupState& group = channel();
    const std::uint64_t in_group = gathers ? input_.payload() : output_.payload();
    detail::MoveQuery query = detail::move_query_for(group, detail::TunedOperation::crossing, args_.type);
    one_hop_packs_ = detail::one_hop_packs(query);
    const bool in_one_hop = in_group <= one_hop_packs_ * sizeof(detail::Pack);
    query.group_ranks = args_.group_ranks;
    query.table_bytes = in_group;
    // In one hop a rank takes the sums of every shard that it needs, in two its own.
    query.own_bytes = in_one_hop ? output_.payload() : in_group / args_.group_ranks;
    query.whole_bytes = gathers ? output_.payload() : input_.payload();
    query.launch = args_.launch;
    query.max_blocks = group.communicator().max_blocks(args_.launch);
    plan_ = detail::plan_move(query);
    return {detail::fingerprint(detail::name_of_operation<CrossingCall>(), args_.width, args_.type, args_.group_ranks,
                                detail::fingerprint(args_.counts), args_.tag),
            CrossingWords{.gathers = gathers,
                          .type = args_.type,
                          .group_ranks = static_cast<std::uint32_t>(args_.group_ranks),
                          .tag = args_.tag,
                          .width = args_.width,
                          .counts = detail::words_of(args_.counts)},
            true};
  }

  template <class Run>
  void each_step(Run run) const {
    if (auto step = detail::numbers_step(channel(), args_.counts)) run(std::move(*step));
    const auto aligned16 = [](const Extent& e) { return detail::rows_are_aligned16(e.data, e.row_bytes, e.stride); };
    const detail::CrossingQuery query{.type = args_.type,
                                      .size = static_cast<std::uint32_t>(channel().size()),
                                      .aligned16 = aligned16(input_) && aligned16(output_)};
    const std::size_t own_rows = gathers ? args_.input_rows : args_.output_rows;
    const std::size_t whole_rows = gathers ? args_.output_rows : args_.input_rows;
    constexpr std::size_t any = std::numeric_limits<std::int64_t>::max();  // no tensor has a shard's rows alone
    detail::CountedPartition shards = detail::counted_partition(channel(), args_.counts, false, any, whole_rows);
    shards.warp_groups = static_cast<std::uint32_t>(plan_.warp_groups);
    run({.call = {},
         .bound = find_kernel(query).with({.partition = {.shards = shards,
                                                         .group_ranks = static_cast<std::uint32_t>(args_.group_ranks),
                                                         .gathers = gathers,
                                                         .own_rows = own_rows},
                                           .slot_packs = plan_.slot_packs,
                                           .one_hop_packs = one_hop_packs_,
                                           .input = input_.data,
                                           .output = const_cast<void*>(output_.data),
                                           .row_bytes = output_.row_bytes,
                                           .input_stride = input_.stride,
                                           .output_stride = output_.stride}),
         .blocks = plan_.blocks,
         .threads = plan_.threads});
  }

 private:
  const CrossingArgs& args_;
  Extent input_{}, output_{};
  std::uint64_t one_hop_packs_ = 0;
  detail::MovePlan plan_{};
};

// Groups of one rank have nothing to sum, or nothing to share. Wrong types are for the crossing's own checks.
bool is_one_hop(const CrossingArgs& args) {
  return args.group_ranks == 1 && args.type <= DataType::i32;
}

}  // namespace

void gather_sums(const Group& caller, const CrossingArgs& args) {
  if (is_one_hop(args)) {
    const std::size_t element = size_of(args.type);
    const GatheredTensor tensor{.input = args.input,
                                .output = args.output,
                                .row_bytes = args.width * element,
                                .input_stride = args.input_stride * element,
                                .output_stride = args.output_stride * element};
    return all_gather_v(caller, {.tensors = {&tensor, 1},
                                 .counts = args.counts,
                                 .input_rows = args.input_rows,
                                 .output_rows = args.output_rows,
                                 .stream = args.stream,
                                 .tag = args.tag,
                                 .launch = args.launch});
  }
  CrossingCall<true> call(caller, args);
  detail::make_call(call);
}

void scatter_sums(const Group& caller, const CrossingArgs& args) {
  if (is_one_hop(args)) {
    return reduce_scatter_v(caller, {.input = args.input,
                                     .output = args.output,
                                     .width = args.width,
                                     .input_stride = args.input_stride,
                                     .output_stride = args.output_stride,
                                     .type = args.type,
                                     .counts = args.counts,
                                     .input_rows = args.input_rows,
                                     .output_rows = args.output_rows,
                                     .stream = args.stream,
                                     .tag = args.tag,
                                     .launch = args.launch});
  }
  CrossingCall<false> call(caller, args);
  detail::make_call(call);
}

}  // namespace weft
