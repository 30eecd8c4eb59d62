// reduce_scatter_tensor, reduce_scatter_v and reduce.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "base/enum_text.hpp"
#include "base/fingerprint.hpp"
#include "comm/call.hpp"
#include "numeric/rows.hpp"
#include "ops/moves/group_moves.hpp"
#include "ops/moves/move_kernels.hpp"
#include "ops/moves/ragged.hpp"
#include "weft/collectives.hpp"

namespace weft {
namespace {

using detail::Extent;
using detail::GroupState;

struct ScatterWords {
  static constexpr std::string_view kKind = "reduce_scatter_tensor";
  bool direct;
  ReduceOp op;
  DataType type;
  std::uint32_t tag;
  std::uint64_t rows, width;
  std::string text() const {
    return fmt::format("reduce_scatter_tensor {} {} rows of {}[{}]{} tag {}", name(op), rows, name(type), width,
                       detail::carrier(direct), tag);
  }
};
struct ReduceWords {
  static constexpr std::string_view kKind = "reduce";
  bool direct;
  ReduceOp op;
  DataType type;
  int root;
  std::uint32_t tag;
  std::uint64_t count;
  std::string text() const {
    return fmt::format("reduce {} {}[{}] root {}{} tag {}", name(op), name(type), count, root, detail::carrier(direct),
                       tag);
  }
};
struct ScatterVWords {
  static constexpr std::string_view kKind = "reduce_scatter_v";
  ReduceOp op;
  DataType type;
  std::uint32_t tag;
  std::uint64_t width;
  detail::CountsWords counts;
  std::string text() const {
    return fmt::format("reduce_scatter_v {} rows of {}[{}], {}, tag {}", name(op), name(type), width, counts.text(),
                       tag);
  }
};

// The part that the three have in common.
template <class Args, class Partition>
class Scatter : public detail::GroupCall {
 public:
  Scatter(const Group& caller, const Args& args) : GroupCall(caller, args.stream, args.launch), args_(args) {}

  template <class Run>
  void each_step(Run run) const {
    const detail::ScatterQuery<Partition> query{.instance = instance_};
    if constexpr (!Partition::kKnown) {
      if (auto step = detail::numbers_step(channel(), args_.counts)) run(std::move(*step));
    }
    run({.call = {},
         .bound = find_kernel(query).with({.partition = partition_,
                                           .slot_packs = plan_.slot_packs,
                                           .input = input_.data,
                                           .output = const_cast<void*>(output_.data),
                                           .row_bytes = output_.row_bytes,
                                           .input_stride = input_.stride,
                                           .output_stride = output_.stride,
                                           .op = args_.op}),
         .blocks = plan_.blocks,
         .threads = plan_.threads});
  }

 protected:
  void check_choices() {
    detail::check_choice("type", args_.type, DataType::u8);
    detail::check_choice("op", args_.op, ReduceOp::avg);
  }
  void find_tensors(std::size_t input_rows, std::size_t output_rows) {
    const std::size_t element = size_of(args_.type);
    input_ = detail::extent_of({"input", args_.input, input_rows, args_.width, args_.input_stride, element});
    output_ = detail::extent_of({"output", args_.output, output_rows, args_.width, args_.output_stride, element});
  }
  // `place`: the row of the input at which the output may begin.
  void check_tensors(std::size_t place) {
    const GroupState& group = channel();
    detail::check_launch(group, args_.launch, detail::kMoveThreads);
    group.communicator().fabric().check_stream(stream());
    detail::check_extent(group, input_);
    detail::check_extent(group, output_);
    detail::check_overlap(output_, input_, place);
  }
  // `to_one`: bytes of the only rank's result, if only one has a result.
  void plan_scatter(const Partition& partition, std::uint64_t to_one = 0) {
    const GroupState& group = channel();
    const auto aligned16 = [](const Extent& e) { return detail::rows_are_aligned16(e.data, e.row_bytes, e.stride); };
    instance_ = {.type = args_.type,
                 .ops = detail::ops_for(args_.type, args_.op),
                 .size = static_cast<std::uint32_t>(group.size()),
                 .aligned16 = aligned16(input_) && aligned16(output_)};
    detail::MoveQuery query = detail::move_query_for(group, detail::TunedOperation::reduce_scatter, args_.type);
    query.own_bytes = std::max<std::uint64_t>(output_.payload(), to_one);
    query.whole_bytes = input_.payload();
    query.sent_bytes = to_one;
    query.launch = args_.launch;
    query.max_blocks = group.communicator().max_blocks(args_.launch);
    plan_ = detail::plan_move(query);
    partition_ = partition;
    partition_.warp_groups = static_cast<std::uint32_t>(plan_.warp_groups);
    if constexpr (Partition::kKnown) {
      partition_.detour = plan_.detour;
    } else {
      partition_.detour_packs = plan_.detour_packs;
    }
  }

  const Args& args_;
  Extent input_{}, output_{};

 private:
  detail::InstanceQuery instance_{};
  Partition partition_{};
  detail::MovePlan plan_{};
};

class ScatterTensor : public Scatter<ReduceScatterArgs, detail::EqualPartition> {
 public:
  static constexpr const char* kRange = "weft::reduce_scatter_tensor";
  using Scatter::Scatter;

  void check() {
    check_choices();
    detail::check_size("rows", args_.rows);
    detail::check_size("width", args_.width);
    find_tensors(args_.rows * static_cast<std::size_t>(channel().size()), args_.rows);
    check_tensors(static_cast<std::size_t>(channel().rank()) * args_.rows);
  }
  bool wants_nccl() const { return false; }
  detail::NcclPlan by_nccl() const {
    detail::check_nccl_reduces(args_.type, args_.op);
    detail::check_side_by_side(channel(), detail::name_of_operation<ScatterTensor>(), input_);
    detail::check_side_by_side(channel(), detail::name_of_operation<ScatterTensor>(), output_);
    return {
        .name = name(),
        .work = detail::NcclReduceScatter{args_.input, args_.output, args_.rows * args_.width, args_.type, args_.op}};
  }
  detail::CallName plan(bool) {
    plan_scatter({.rows = args_.rows, .input_step = args_.rows, .output_step = 0, .sender = detail::kEverybody});
    return name();
  }

 private:
  detail::CallName name() const {
    return {detail::fingerprint("reduce_scatter_tensor", args_.op, args_.rows, args_.width, args_.type, args_.tag),
            ScatterWords{.direct = channel().direct(),
                         .op = args_.op,
                         .type = args_.type,
                         .tag = args_.tag,
                         .rows = args_.rows,
                         .width = args_.width}};
  }
};

class ScatterV : public Scatter<ReduceScatterVArgs, detail::CountedPartition> {
 public:
  static constexpr const char* kRange = "weft::reduce_scatter_v";
  static constexpr std::string_view kHint = detail::kCountsHint;
  using Scatter::Scatter;

  void check() {
    const GroupState& group = channel();
    check_choices();
    detail::check_size("input_rows", args_.input_rows);
    detail::check_size("output_rows", args_.output_rows);
    detail::check_size("width", args_.width);
    detail::check_counts(group, args_.counts);
    find_tensors(args_.input_rows, args_.output_rows);
    check_tensors(detail::own_place(group, args_.counts));
    detail::check_numbers_apart(args_.counts, static_cast<std::size_t>(group.size()), output_);
  }
  detail::CallName plan(bool) {
    plan_scatter(detail::counted_partition(channel(), args_.counts, true, args_.output_rows, args_.input_rows));
    return {detail::fingerprint("reduce_scatter_v", args_.op, args_.width, args_.type,
                                detail::fingerprint(args_.counts), args_.tag),
            ScatterVWords{.op = args_.op,
                          .type = args_.type,
                          .tag = args_.tag,
                          .width = args_.width,
                          .counts = detail::words_of(args_.counts)},
            true};
  }
};

// A scatter in which only the root has a result: one row.
class Reduce : public Scatter<ReduceArgs, detail::EqualPartition> {
 public:
  static constexpr const char* kRange = "weft::reduce";
  using Scatter::Scatter;

  void check() {
    check_choices();
    detail::check_root(channel(), args_.root);
    detail::check_size("count", args_.count);
    const std::size_t element = size_of(args_.type);
    const bool is_root = channel().rank() == args_.root;
    input_ = detail::extent_of({"input", args_.input, 1, args_.count, 0, element});
    output_ =
        detail::extent_of({"output", is_root ? args_.output : nullptr, is_root ? 1u : 0u, args_.count, 0, element});
    check_tensors(0);
  }
  bool wants_nccl() const { return false; }
  detail::NcclPlan by_nccl() const {
    detail::check_nccl_reduces(args_.type, args_.op);
    return {.name = name(),
            .work = detail::NcclReduce{args_.input, args_.output, args_.count, args_.type, args_.op, args_.root}};
  }
  detail::CallName plan(bool) {
    plan_scatter({.rows = 1, .input_step = 0, .output_step = 0, .sender = static_cast<std::uint32_t>(args_.root)},
                 input_.payload());
    return name();
  }

 private:
  detail::CallName name() const {
    return {detail::fingerprint("reduce", args_.op, args_.count, args_.type, args_.root, args_.tag),
            ReduceWords{.direct = channel().direct(),
                        .op = args_.op,
                        .type = args_.type,
                        .root = args_.root,
                        .tag = args_.tag,
                        .count = args_.count}};
  }
};

}  // namespace

void reduce(const Group& caller, const ReduceArgs& args) {
  Reduce call(caller, args);
  detail::make_call(call);
}

void reduce_scatter_tensor(const Group& caller, const ReduceScatterArgs& args) {
  ScatterTensor call(caller, args);
  detail::make_call(call);
}

void reduce_scatter_v(const Group& caller, const ReduceScatterVArgs& args) {
  ScatterV call(caller, args);
  detail::make_call(call);
}

}  // namespace weft
