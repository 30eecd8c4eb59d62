// Collectives that move bits: all-gather, all-to-all, broadcast, and the ragged all-gather.
#include <cstdint>

#include "comm/call.hpp"
#include "core/fingerprint.hpp"
#include "core/nvtx.hpp"
#include "weft/collectives.hpp"

namespace weft {
namespace {

using detail::Extent;
using detail::GroupState;
using detail::require;

std::size_t stride_or(std::size_t stride, std::size_t row_bytes) {
  return stride != 0 ? stride : row_bytes;
}

// Lines: three packs of payload travel in four of the wire on GPUs, one in two on CPU ranks.
detail::MovePlan plan(const GroupState& group, std::uint64_t bytes, const Launch& launch) {
  const Device device = group.communicator().fabric().device();
  const auto size = static_cast<std::uint32_t>(group.size());
  const bool cpu = device == Device::cpu;
  return detail::plan_move({.device = device,
                            .size = size,
                            .layout = group.layout(),
                            .bytes = bytes,
                            .unit_bytes = cpu ? 16u : 48u,
                            .wire_packs = cpu ? 2u : 4u,
                            .streams = size,
                            .launch = launch,
                            .max_blocks = group.communicator().max_blocks()});
}

struct EqualCall {
  const char* operation;
  detail::EqualShares shares;
  Extent input, output;
  std::size_t place;  // of the input among the equal parts of the output, when it is one of them
  std::uint32_t root = 0;
  Stream stream;
  std::uint32_t tag;
  Launch launch;
};

void make(const Group& handle, const EqualCall& call) {
  const GroupState& group = handle.state();
  detail::check_launch(group, call.launch, 512);
  group.communicator().fabric().check_stream(call.stream);
  detail::check_extent(group, call.input);
  detail::check_extent(group, call.output);
  detail::check_overlap(call.input, call.output, call.place);
  detail::check_ready(handle, call.operation);
  const std::uint64_t rows = call.shares.rows, row_bytes = call.input.row_bytes;
  const detail::MovePlan plan = weft::plan(group, rows * row_bytes, call.launch);
  detail::make_call(
      handle,
      {.name = {detail::fingerprint(call.operation, rows, row_bytes, call.root, call.tag),
                fmt::format("{} {} rows of {} bytes{} tag {}", call.operation, rows, row_bytes,
                            call.shares.sender == detail::kEverybody ? "" : fmt::format(" root {}", call.root),
                            call.tag)},
       .operation =
           detail::EqualCopy{.work = {.shares = call.shares,
                                      .line_packs = plan.slot_packs,
                                      .tensors = 1,
                                      .tensor = {{.input = call.input.data,
                                                  .output = const_cast<void*>(call.output.data),
                                                  .row_bytes = row_bytes,
                                                  .input_stride = call.input.stride,
                                                  .output_stride = call.output.stride}}},
                             .whole = detail::rows_may_be_whole(call.input.data, row_bytes, call.input.stride) &&
                                      detail::rows_may_be_whole(call.output.data, row_bytes, call.output.stride)},
       .blocks = plan.blocks,
       .threads = plan.threads,
       .stream = call.stream});
}

}  // namespace

void all_gather_into_tensor(const Group& handle, const AllGatherArgs& args) {
  const detail::NvtxRange range("weft::all_gather_into_tensor");
  const GroupState& group = handle.state();
  const auto size = static_cast<std::size_t>(group.size());
  detail::check_rows(args.rows, "row_bytes", args.row_bytes);
  const Extent input{"input", args.input, args.rows, args.row_bytes, stride_or(args.input_stride, args.row_bytes)};
  const Extent output{"output", args.output, args.rows * size, args.row_bytes,
                      stride_or(args.output_stride, args.row_bytes)};
  make(handle, {.operation = "all_gather_into_tensor",
                .shares = {.rows = args.rows, .input_step = 0, .output_step = args.rows, .sender = detail::kEverybody},
                .input = input,
                .output = output,
                .place = static_cast<std::size_t>(group.rank()),
                .stream = args.stream,
                .tag = args.tag,
                .launch = args.launch});
}

void all_to_all(const Group& handle, const AllToAllArgs& args) {
  const detail::NvtxRange range("weft::all_to_all");
  const GroupState& group = handle.state();
  const auto size = static_cast<std::size_t>(group.size());
  detail::check_rows(args.rows, "row_bytes", args.row_bytes);
  const Extent input{"input", args.input, args.rows * size, args.row_bytes,
                     stride_or(args.input_stride, args.row_bytes)};
  const Extent output{"output", args.output, args.rows * size, args.row_bytes,
                      stride_or(args.output_stride, args.row_bytes)};
  make(handle,
       {.operation = "all_to_all",
        .shares = {.rows = args.rows, .input_step = args.rows, .output_step = args.rows, .sender = detail::kEverybody},
        .input = input,
        .output = output,
        .place = detail::kNowhere,
        .stream = args.stream,
        .tag = args.tag,
        .launch = args.launch});
}

void broadcast(const Group& handle, const BroadcastArgs& args) {
  const detail::NvtxRange range("weft::broadcast");
  const GroupState& group = handle.state();
  require(args.root >= 0 && args.root < group.size(), "root: {} is not a rank of the group, 0 … {}", args.root,
          group.size() - 1);
  detail::check_rows(args.rows, "row_bytes", args.row_bytes);
  const Extent output{"output", args.output, args.rows, args.row_bytes, stride_or(args.output_stride, args.row_bytes)};
  Extent input = output;  // of who sends nothing: nobody reads it
  if (group.rank() == args.root) {
    input = {"input", args.input, args.rows, args.row_bytes, stride_or(args.input_stride, args.row_bytes)};
  }
  const auto root = static_cast<std::uint32_t>(args.root);
  make(handle, {.operation = "broadcast",
                .shares = {.rows = args.rows, .input_step = 0, .output_step = 0, .sender = root},
                .input = input,
                .output = output,
                .place = 0,
                .root = root,
                .stream = args.stream,
                .tag = args.tag,
                .launch = args.launch});
}

void all_gather_v(const Group& handle, const AllGatherVArgs& args) {
  const detail::NvtxRange range("weft::all_gather_v");
  const GroupState& group = handle.state();
  const std::size_t most_tensors = kMaxGatheredTensors;
  require(!args.tensors.empty() && args.tensors.size() <= most_tensors, "tensors: {} is not between 1 and {}",
          args.tensors.size(), most_tensors);
  detail::check_rows(args.output_rows, "row_bytes", 0);
  detail::check_counts(group, args.counts);
  detail::check_launch(group, args.launch, 512);
  group.communicator().fabric().check_stream(args.stream);
  detail::CountedCopy operation{};
  operation.whole = true;
  operation.work.shares = detail::counted_shares(group, args.counts, false, args.input_rows, args.output_rows);
  std::uint64_t bytes = 0;
  std::uint32_t fingerprint = detail::fingerprint("all_gather_v", args.tensors.size(), args.counts.slot,
                                                  args.counts.slot_rows, args.counts.split, args.tag);
  std::string widths;
  for (const GatheredTensor& tensor : args.tensors) {
    detail::check_rows(args.input_rows, "row_bytes", tensor.row_bytes);
    const Extent input{"input", tensor.input, args.input_rows, tensor.row_bytes,
                       stride_or(tensor.input_stride, tensor.row_bytes)};
    const Extent output{"output", tensor.output, args.output_rows, tensor.row_bytes,
                        stride_or(tensor.output_stride, tensor.row_bytes)};
    detail::check_extent(group, input);
    detail::check_extent(group, output);
    operation.work.tensor[operation.work.tensors++] = {.input = input.data,
                                                       .output = const_cast<void*>(output.data),
                                                       .row_bytes = tensor.row_bytes,
                                                       .input_stride = input.stride,
                                                       .output_stride = output.stride};
    operation.whole = operation.whole && detail::rows_may_be_whole(input.data, tensor.row_bytes, input.stride) &&
                      detail::rows_may_be_whole(output.data, tensor.row_bytes, output.stride);
    bytes += tensor.row_bytes * args.input_rows;
    fingerprint = detail::fingerprint("tensor", fingerprint, tensor.row_bytes);
    widths += fmt::format("{}{}", widths.empty() ? "" : " + ", tensor.row_bytes);
  }
  detail::check_ready(handle, "all_gather_v");
  const detail::MovePlan plan = weft::plan(group, bytes, args.launch);
  operation.work.line_packs = plan.slot_packs;
  detail::make_call(handle, {.name = {fingerprint, fmt::format("all_gather_v rows of {} bytes, {}, tag {}", widths,
                                                               detail::describe(args.counts), args.tag)},
                             .operation = operation,
                             .blocks = plan.blocks,
                             .threads = plan.threads,
                             .stream = args.stream});
}

}  // namespace weft
