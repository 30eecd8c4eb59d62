// Collectives that move bits: all-gather, all-to-all, broadcast, and the ragged all-gather.
#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/fingerprint.hpp"
#include "base/nvtx.hpp"
#include "comm/call.hpp"
#include "numeric/rows.hpp"
#include "ops/moves/ragged.hpp"
#include "ops/moves/symmetric_outputs.hpp"
#include "weft/collectives.hpp"

namespace weft {
namespace {

using detail::Extent;
using detail::GroupState;
using detail::require;

// What is said of each tensor of a ragged gather; made once, as most calls are right.
struct TensorNames {
  std::string row_bytes, input, output;
};
const TensorNames& names_of(std::size_t tensor) {
  static const auto all = [] {
    std::array<TensorNames, kMaxGatheredTensors> names;
    for (std::size_t t = 0; t < names.size(); ++t) {
      const auto name = [&](std::string_view field) { return fmt::format("tensors[{}].{}", t, field); };
      names[t] = {name("row_bytes"), name("input"), name("output")};
    }
    return names;
  }();
  return all[tensor];
}

// Lines: three packs of payload travel in four of the wire on GPUs, one in two on CPU ranks. `own`, `whole`: bytes that
// this rank has room for, of its own and of all ranks. `sent`: MoveQuery::sent_bytes.
struct PlanArgs {
  std::uint64_t own, whole, sent;
  bool symmetric;
  Launch launch;
};
detail::MovePlan plan(const GroupState& group, const PlanArgs& args) {
  const Device device = group.communicator().fabric().device();
  const auto size = static_cast<std::uint32_t>(group.size());
  const bool cpu = device == Device::cpu;
  return detail::plan_move({.device = device,
                            .size = size,
                            .layout = group.layout(),
                            .own_bytes = args.own,
                            .whole_bytes = args.whole,
                            .sent_bytes = args.sent,
                            .unit_bytes = cpu ? 16u : 48u,
                            .wire_packs = cpu ? 2u : 4u,
                            .streams = size,
                            .symmetric = args.symmetric,
                            .launch = args.launch,
                            .max_blocks = group.communicator().max_blocks()});
}

void check_shape(std::size_t rows, std::size_t row_bytes) {
  detail::check_size("rows", rows);
  detail::check_size("row_bytes", row_bytes);
}

struct EqualCall {
  const char* operation;
  detail::NcclWork by_nccl;  // the same for ranks that do not reach each other's memory
  detail::EqualShares shares;
  Extent input, output;
  std::size_t place;  // the row of the output with which the input may begin
  std::uint32_t root = 0;
  Stream stream;
  std::uint32_t tag;
  Launch launch;
};

void make(const Group& handle, const EqualCall& call) {
  const GroupState& group = handle.state();
  detail::check_launch(group, call.launch, detail::kMoveThreads);
  group.communicator().fabric().check_stream(call.stream);
  detail::check_extent(group, call.input);
  detail::check_extent(group, call.output);
  detail::check_overlap(call.input, call.output, call.place);
  detail::check_alive(handle, call.operation);
  const std::uint64_t rows = call.shares.rows, row_bytes = call.input.row_bytes;
  detail::SymmetricPlace in_symmetric(group);
  in_symmetric.add(call.output);
  const detail::CallName name{
      in_symmetric.mark(detail::fingerprint(call.operation, rows, row_bytes, call.root, call.tag)),
      fmt::format("{} {} rows of {} bytes{}{}{} tag {}", call.operation, rows, row_bytes,
                  call.shares.sender == detail::kEverybody ? "" : fmt::format(" root {}", call.root),
                  in_symmetric.text(), detail::carrier(group.direct()), call.tag)};
  if (!group.direct()) {
    detail::check_side_by_side(group, call.operation, call.input);
    detail::check_side_by_side(group, call.operation, call.output);
    return detail::call_nccl(handle, name, call.stream, call.by_nccl);
  }
  const std::uint64_t message = rows * row_bytes;
  const bool all_send = call.shares.sender == detail::kEverybody;
  const detail::MovePlan plan =
      weft::plan(group, {.own = message,
                         .whole = call.output.payload(),
                         .sent = all_send ? message * static_cast<std::uint64_t>(group.size()) : message,
                         .symmetric = in_symmetric.found(),
                         .launch = call.launch});
  detail::EqualShares shares = call.shares;
  shares.detour = plan.detour;
  shares.crews = static_cast<std::uint32_t>(plan.crews);
  const detail::CopyWork<detail::EqualShares, 1> work{.shares = shares,
                                                      .line_packs = plan.slot_packs,
                                                      .tensors = 1,
                                                      .tensor = {{.input = call.input.data,
                                                                  .output = const_cast<void*>(call.output.data),
                                                                  .row_bytes = row_bytes,
                                                                  .input_stride = call.input.stride,
                                                                  .output_stride = call.output.stride}}};
  const bool whole = detail::rows_may_be_whole(call.input.data, row_bytes, call.input.stride) &&
                     detail::rows_may_be_whole(call.output.data, row_bytes, call.output.stride);
  detail::make_call(handle, {.name = name,
                             .bound = in_symmetric.serve(work, whole),
                             .blocks = plan.blocks,
                             .threads = plan.threads,
                             .stream = call.stream});
}

}  // namespace

static void make_all_gather_into_tensor(const Group& handle, const AllGatherArgs& args) {
  const GroupState& group = handle.state();
  const auto size = static_cast<std::size_t>(group.size());
  check_shape(args.rows, args.row_bytes);
  const Extent input = detail::extent_of({"input", args.input, args.rows, args.row_bytes, args.input_stride});
  const Extent output =
      detail::extent_of({"output", args.output, args.rows * size, args.row_bytes, args.output_stride});
  make(handle, {.operation = "all_gather_into_tensor",
                .by_nccl = detail::NcclAllGather{args.input, args.output, input.payload()},
                .shares = {.rows = args.rows, .input_step = 0, .output_step = args.rows, .sender = detail::kEverybody},
                .input = input,
                .output = output,
                .place = static_cast<std::size_t>(group.rank()) * args.rows,
                .stream = args.stream,
                .tag = args.tag,
                .launch = args.launch});
}

void all_gather_into_tensor(const Group& caller, const AllGatherArgs& args) {
  const detail::NvtxRange range("weft::all_gather_into_tensor");
  const Group handle = detail::held(caller);
  detail::make_or_tell(handle.state(), args.stream, [&] { make_all_gather_into_tensor(handle, args); });
}

static void make_all_to_all(const Group& handle, const AllToAllArgs& args) {
  const GroupState& group = handle.state();
  const auto size = static_cast<std::size_t>(group.size());
  check_shape(args.rows, args.row_bytes);
  const Extent input = detail::extent_of({"input", args.input, args.rows * size, args.row_bytes, args.input_stride});
  const Extent output =
      detail::extent_of({"output", args.output, args.rows * size, args.row_bytes, args.output_stride});
  make(handle,
       {.operation = "all_to_all",
        .by_nccl = detail::NcclAllToAll{args.input, args.output, args.rows * args.row_bytes},
        .shares = {.rows = args.rows, .input_step = args.rows, .output_step = args.rows, .sender = detail::kEverybody},
        .input = input,
        .output = output,
        .place = detail::kNowhere,
        .stream = args.stream,
        .tag = args.tag,
        .launch = args.launch});
}

void all_to_all(const Group& caller, const AllToAllArgs& args) {
  const detail::NvtxRange range("weft::all_to_all");
  const Group handle = detail::held(caller);
  detail::make_or_tell(handle.state(), args.stream, [&] { make_all_to_all(handle, args); });
}

static void make_broadcast(const Group& handle, const BroadcastArgs& args) {
  const GroupState& group = handle.state();
  require(args.root >= 0 && args.root < group.size(), "root: {} is not a rank of the group, 0 … {}", args.root,
          group.size() - 1);
  check_shape(args.rows, args.row_bytes);
  const Extent output = detail::extent_of({"output", args.output, args.rows, args.row_bytes, args.output_stride});
  Extent input = output;  // of who sends nothing: nobody reads it
  if (group.rank() == args.root) {
    input = detail::extent_of({"input", args.input, args.rows, args.row_bytes, args.input_stride});
  }
  const auto root = static_cast<std::uint32_t>(args.root);
  make(handle, {.operation = "broadcast",
                .by_nccl = detail::NcclBroadcast{input.data, args.output, output.payload(), args.root},
                .shares = {.rows = args.rows, .input_step = 0, .output_step = 0, .sender = root},
                .input = input,
                .output = output,
                .place = 0,
                .root = root,
                .stream = args.stream,
                .tag = args.tag,
                .launch = args.launch});
}

void broadcast(const Group& caller, const BroadcastArgs& args) {
  const detail::NvtxRange range("weft::broadcast");
  const Group handle = detail::held(caller);
  detail::make_or_tell(handle.state(), args.stream, [&] { make_broadcast(handle, args); });
}

static void make_all_gather_v(const Group& handle, const AllGatherVArgs& args) {
  const GroupState& group = handle.state();
  const std::size_t most_tensors = kMaxGatheredTensors;
  require(!args.tensors.empty() && args.tensors.size() <= most_tensors, "tensors: {} is not between 1 and {}",
          args.tensors.size(), most_tensors);
  detail::check_size("input_rows", args.input_rows);
  detail::check_size("output_rows", args.output_rows);
  detail::check_counts(group, args.counts);
  detail::check_launch(group, args.launch, detail::kMoveThreads);
  group.communicator().fabric().check_stream(args.stream);
  detail::CopyWork<detail::CountedShares, detail::kMaxTensors> work{};
  bool all_whole = true;
  work.shares = detail::counted_shares(group, args.counts, false, args.input_rows, args.output_rows);
  const std::size_t place = detail::own_place(group, args.counts);
  std::uint64_t own = 0, whole = 0;
  std::uint32_t fingerprint =
      detail::fingerprint("all_gather_v", args.tensors.size(), detail::fingerprint(args.counts), args.tag);
  std::string widths;
  detail::SymmetricPlace in_symmetric(group);
  std::array<Extent, kMaxGatheredTensors> inputs, outputs;
  for (const GatheredTensor& tensor : args.tensors) {
    const std::size_t number = work.tensors;
    const TensorNames& names = names_of(number);
    detail::check_size(names.row_bytes.c_str(), tensor.row_bytes);
    const Extent input =
        detail::extent_of({names.input.c_str(), tensor.input, args.input_rows, tensor.row_bytes, tensor.input_stride});
    const Extent output = detail::extent_of(
        {names.output.c_str(), tensor.output, args.output_rows, tensor.row_bytes, tensor.output_stride});
    detail::check_extent(group, input);
    detail::check_extent(group, output);
    detail::check_overlap(input, output, place);
    detail::check_numbers_apart(args.counts, static_cast<std::size_t>(group.size()), output);
    for (std::size_t before = 0; before < number; ++before) {
      detail::check_overlap(output, outputs[before], detail::kNowhere);
      detail::check_overlap(output, inputs[before], detail::kNowhere);
      detail::check_overlap(input, outputs[before], detail::kNowhere);
    }
    inputs[number] = input;
    outputs[number] = output;
    work.tensor[work.tensors++] = {.input = input.data,
                                   .output = const_cast<void*>(output.data),
                                   .row_bytes = tensor.row_bytes,
                                   .input_stride = input.stride,
                                   .output_stride = output.stride};
    all_whole = all_whole && detail::rows_may_be_whole(input.data, tensor.row_bytes, input.stride) &&
                detail::rows_may_be_whole(output.data, tensor.row_bytes, output.stride);
    in_symmetric.add(output);
    own += input.payload();
    whole += output.payload();
    fingerprint = detail::fingerprint("tensor", fingerprint, tensor.row_bytes);
    widths += fmt::format("{}{}", widths.empty() ? "" : " + ", tensor.row_bytes);
  }
  detail::check_ready(handle, "all_gather_v", detail::kCountsHint);
  const detail::MovePlan plan = weft::plan(
      group, {.own = own, .whole = whole, .sent = 0, .symmetric = in_symmetric.found(), .launch = args.launch});
  work.line_packs = plan.slot_packs;
  work.shares.detour_packs = plan.detour_packs;
  work.shares.crews = static_cast<std::uint32_t>(plan.crews);
  const detail::CallName name{in_symmetric.mark(fingerprint),
                              fmt::format("all_gather_v rows of {} bytes, {}{}, tag {}", widths,
                                          detail::describe(args.counts), in_symmetric.text(), args.tag),
                              true};
  detail::make_call(handle, {.name = name,
                             .bound = in_symmetric.serve(work, all_whole),
                             .blocks = plan.blocks,
                             .threads = plan.threads,
                             .stream = args.stream});
}

void all_gather_v(const Group& caller, const AllGatherVArgs& args) {
  const detail::NvtxRange range("weft::all_gather_v");
  const Group handle = detail::held(caller);
  detail::make_or_tell(handle.state(), args.stream, [&] { make_all_gather_v(handle, args); });
}

}  // namespace weft
