// reduce_scatter_tensor and reduce_scatter_v.
#include <fmt/format.h>

#include <cstdint>

#include "base/enum_text.hpp"
#include "base/fingerprint.hpp"
#include "comm/call.hpp"
#include "numeric/rows.hpp"
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
  DataType type;
  std::uint32_t tag;
  std::uint64_t rows, width;
  std::string text() const {
    return fmt::format("reduce_scatter_tensor {} rows of {}[{}]{} tag {}", rows, name(type), width,
                       detail::carrier(direct), tag);
  }
};
struct ScatterVWords {
  static constexpr std::string_view kKind = "reduce_scatter_v";
  DataType type;
  std::uint32_t tag;
  std::uint64_t width;
  detail::CountsWords counts;
  std::string text() const {
    return fmt::format("reduce_scatter_v rows of {}[{}], {}, tag {}", name(type), width, counts.text(), tag);
  }
};

// The part that the two forms have in common.
template <class Args, class Partition>
class Scatter : public detail::GroupCall {
 public:
  Scatter(const Group& caller, const Args& args) : GroupCall(caller, args.stream), args_(args) {}

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
                                           .output_stride = output_.stride}),
         .blocks = plan_.blocks,
         .threads = plan_.threads});
  }

 protected:
  // `place`: the row of the input at which the output may begin.
  void check_tensors(std::size_t input_rows, std::size_t output_rows, std::size_t place) {
    const GroupState& group = channel();
    const std::size_t element = size_of(args_.type);
    input_ = detail::extent_of({"input", args_.input, input_rows, args_.width, args_.input_stride, element});
    output_ = detail::extent_of({"output", args_.output, output_rows, args_.width, args_.output_stride, element});
    detail::check_launch(group, args_.launch, detail::kMoveThreads);
    group.communicator().fabric().check_stream(stream());
    detail::check_extent(group, input_);
    detail::check_extent(group, output_);
    detail::check_overlap(output_, input_, place);
  }
  void plan_scatter(const Partition& partition) {
    const GroupState& group = channel();
    const auto aligned16 = [](const Extent& e) { return detail::rows_are_aligned16(e.data, e.row_bytes, e.stride); };
    instance_ = {.type = args_.type,
                 .op = ReduceOp::sum,
                 .size = static_cast<std::uint32_t>(group.size()),
                 .aligned16 = aligned16(input_) && aligned16(output_)};
    plan_ = detail::plan_move({.device = group.communicator().fabric().device(),
                               .size = instance_.size,
                               .layout = group.layout(),
                               .own_bytes = output_.payload(),
                               .whole_bytes = input_.payload(),
                               .unit_bytes = sizeof(detail::Pack),
                               .wire_packs = sizeof(detail::Pack) / detail::payload_bytes(args_.type),
                               .streams = 1,
                               .launch = args_.launch,
                               .max_blocks = group.communicator().max_blocks()});
    partition_ = partition;
    partition_.warp_groups = static_cast<std::uint32_t>(plan_.warp_groups);
    if constexpr (!Partition::kKnown) partition_.detour_packs = plan_.detour_packs;
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
    detail::check_choice("type", args_.type, DataType::i32);
    detail::check_size("rows", args_.rows);
    detail::check_size("width", args_.width);
    check_tensors(args_.rows * static_cast<std::size_t>(channel().size()), args_.rows,
                  static_cast<std::size_t>(channel().rank()) * args_.rows);
  }
  bool wants_nccl() const { return false; }
  detail::NcclPlan by_nccl() const {
    detail::check_side_by_side(channel(), detail::name_of_operation<ScatterTensor>(), input_);
    detail::check_side_by_side(channel(), detail::name_of_operation<ScatterTensor>(), output_);
    return {.name = name(),
            .work = detail::NcclReduceScatter{args_.input, args_.output, args_.rows * args_.width, args_.type}};
  }
  detail::CallName plan(bool) {
    plan_scatter({.rows = args_.rows, .input_step = args_.rows, .output_step = 0, .sender = detail::kEverybody});
    return name();
  }

 private:
  detail::CallName name() const {
    return {detail::fingerprint("reduce_scatter_tensor", args_.rows, args_.width, args_.type, args_.tag),
            ScatterWords{.direct = channel().direct(),
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
    detail::check_choice("type", args_.type, DataType::i32);
    detail::check_size("input_rows", args_.input_rows);
    detail::check_size("output_rows", args_.output_rows);
    detail::check_size("width", args_.width);
    detail::check_counts(group, args_.counts);
    check_tensors(args_.input_rows, args_.output_rows, detail::own_place(group, args_.counts));
    detail::check_numbers_apart(args_.counts, static_cast<std::size_t>(group.size()), output_);
  }
  detail::CallName plan(bool) {
    plan_scatter(detail::counted_partition(channel(), args_.counts, true, args_.output_rows, args_.input_rows));
    return {
        detail::fingerprint("reduce_scatter_v", args_.width, args_.type, detail::fingerprint(args_.counts), args_.tag),
        ScatterVWords{
            .type = args_.type, .tag = args_.tag, .width = args_.width, .counts = detail::words_of(args_.counts)},
        true};
  }
};

}  // namespace

void reduce_scatter_tensor(const Group& caller, const ReduceScatterArgs& args) {
  ScatterTensor call(caller, args);
  detail::make_call(call);
}

void reduce_scatter_v(const Group& caller, const ReduceScatterVArgs& args) {
  ScatterV call(caller, args);
  detail::make_call(call);
}

}  // namespace weft
