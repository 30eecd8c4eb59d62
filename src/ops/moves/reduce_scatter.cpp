// reduce_scatter_tensor and reduce_scatter_v.
#include <cstdint>

#include "base/choices.hpp"
#include "base/fingerprint.hpp"
#include "base/nvtx.hpp"
#include "comm/call.hpp"
#include "numeric/rows.hpp"
#include "ops/moves/move_kernels.hpp"
#include "ops/moves/ragged.hpp"
#include "weft/collectives.hpp"

namespace weft {
namespace {

using detail::Extent;
using detail::GroupState;

// What the two forms have in common. Strides in bytes.
struct Scatter {
  Extent input, output;
  DataType type;
  Stream stream;
  Launch launch;
};

detail::InstanceQuery instance_of(const GroupState& group, const Scatter& scatter) {
  const auto whole = [](const Extent& e) { return detail::rows_may_be_whole(e.data, e.row_bytes, e.stride); };
  return {.type = scatter.type,
          .op = ReduceOp::sum,
          .size = static_cast<std::uint32_t>(group.size()),
          .whole = whole(scatter.input) && whole(scatter.output)};
}

// `place`: the row of the input with which the output may begin.
Scatter check(const GroupState& group, std::size_t place, const Scatter& scatter) {
  detail::check_launch(group, scatter.launch, detail::kMoveThreads);
  group.communicator().fabric().check_stream(scatter.stream);
  detail::check_extent(group, scatter.input);
  detail::check_extent(group, scatter.output);
  detail::check_overlap(scatter.output, scatter.input, place);
  return scatter;
}

template <class Shares>
void make(const Group& handle, const Scatter& scatter, Shares shares, const detail::CallName& name) {
  const GroupState& group = handle.state();
  const std::uint64_t row_bytes = scatter.output.row_bytes;
  const detail::MovePlan plan =
      detail::plan_move({.device = handle.device(),
                         .size = static_cast<std::uint32_t>(group.size()),
                         .layout = group.layout(),
                         .own_bytes = scatter.output.payload(),
                         .whole_bytes = scatter.input.payload(),
                         .unit_bytes = sizeof(detail::Pack),
                         .wire_packs = sizeof(detail::Pack) / detail::payload_bytes(scatter.type),
                         .streams = 1,
                         .launch = scatter.launch,
                         .max_blocks = group.communicator().max_blocks()});
  shares.crews = static_cast<std::uint32_t>(plan.crews);
  if constexpr (!Shares::kKnown) shares.detour_packs = plan.detour_packs;
  const detail::ScatterQuery<Shares> query{.instance = instance_of(group, scatter)};
  detail::make_call(handle, {.name = name,
                             .bound = find_kernel(query).with({.shares = shares,
                                                               .slot_packs = plan.slot_packs,
                                                               .input = scatter.input.data,
                                                               .output = const_cast<void*>(scatter.output.data),
                                                               .row_bytes = row_bytes,
                                                               .input_stride = scatter.input.stride,
                                                               .output_stride = scatter.output.stride}),
                             .blocks = plan.blocks,
                             .threads = plan.threads,
                             .stream = scatter.stream});
}

}  // namespace

static void make_reduce_scatter_tensor(const Group& handle, const ReduceScatterArgs& args) {
  const GroupState& group = handle.state();
  detail::check_choice("type", args.type, DataType::i32);
  const std::size_t element = size_of(args.type), size = static_cast<std::size_t>(group.size());
  detail::check_size("rows", args.rows);
  detail::check_size("width", args.width);
  const Scatter scatter = check(
      group, static_cast<std::size_t>(group.rank()) * args.rows,
      {.input = detail::extent_of({"input", args.input, args.rows * size, args.width, args.input_stride, element}),
       .output = detail::extent_of({"output", args.output, args.rows, args.width, args.output_stride, element}),
       .type = args.type,
       .stream = args.stream,
       .launch = args.launch});
  constexpr const char* operation = "reduce_scatter_tensor";
  detail::check_alive(handle, operation);
  const detail::CallName name{detail::fingerprint(operation, args.rows, args.width, args.type, args.tag),
                              fmt::format("{} {} rows of {}[{}]{} tag {}", operation, args.rows, weft::name(args.type),
                                          args.width, detail::carrier(group.direct()), args.tag)};
  if (!group.direct()) {
    detail::check_side_by_side(group, operation, scatter.input);
    detail::check_side_by_side(group, operation, scatter.output);
    return detail::call_nccl(handle, name, args.stream,
                             detail::NcclReduceScatter{args.input, args.output, args.rows * args.width, args.type});
  }
  const detail::EqualShares shares{
      .rows = args.rows, .input_step = args.rows, .output_step = 0, .sender = detail::kEverybody};
  make(handle, scatter, shares, name);
}

void reduce_scatter_tensor(const Group& caller, const ReduceScatterArgs& args) {
  const detail::NvtxRange range("weft::reduce_scatter_tensor");
  const Group handle = detail::held(caller);
  detail::make_or_tell(handle.state(), args.stream, [&] { make_reduce_scatter_tensor(handle, args); });
}

static void make_reduce_scatter_v(const Group& handle, const ReduceScatterVArgs& args) {
  const GroupState& group = handle.state();
  detail::check_choice("type", args.type, DataType::i32);
  const std::size_t element = size_of(args.type);
  detail::check_size("input_rows", args.input_rows);
  detail::check_size("output_rows", args.output_rows);
  detail::check_size("width", args.width);
  detail::check_counts(group, args.counts);
  const Scatter scatter = check(
      group, detail::own_place(group, args.counts),
      {.input = detail::extent_of({"input", args.input, args.input_rows, args.width, args.input_stride, element}),
       .output = detail::extent_of({"output", args.output, args.output_rows, args.width, args.output_stride, element}),
       .type = args.type,
       .stream = args.stream,
       .launch = args.launch});
  detail::check_numbers_apart(args.counts, static_cast<std::size_t>(group.size()), scatter.output);
  detail::check_ready(handle, "reduce_scatter_v", detail::kCountsHint);
  const detail::CallName name{
      detail::fingerprint("reduce_scatter_v", args.width, args.type, detail::fingerprint(args.counts), args.tag),
      fmt::format("reduce_scatter_v rows of {}[{}], {}, tag {}", weft::name(args.type), args.width,
                  detail::describe(args.counts), args.tag),
      true};
  make(handle, scatter, detail::counted_shares(group, args.counts, true, args.output_rows, args.input_rows), name);
}

void reduce_scatter_v(const Group& caller, const ReduceScatterVArgs& args) {
  const detail::NvtxRange range("weft::reduce_scatter_v");
  const Group handle = detail::held(caller);
  detail::make_or_tell(handle.state(), args.stream, [&] { make_reduce_scatter_v(handle, args); });
}

}  // namespace weft
