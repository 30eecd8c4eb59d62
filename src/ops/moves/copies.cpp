// Collectives that move bits: all-gather, all-to-all, broadcast, and the ragged all-gather.
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <limits>
#include <string>
#include <string_view>

#include "base/fingerprint.hpp"
#include "comm/call.hpp"
#include "numeric/rows.hpp"
#include "ops/moves/copy_plan.hpp"
#include "ops/moves/ragged.hpp"
#include "ops/moves/symmetric_outputs.hpp"
#include "weft/collectives.hpp"

namespace weft {
namespace {

using detail::Extent;
using detail::GroupState;
using detail::require;

// Argument names for errors about each tensor of a ragged gather; made once, because most calls are right.
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

void check_shape(std::size_t rows, std::size_t row_bytes) {
  detail::check_size("rows", rows);
  detail::check_size("row_bytes", row_bytes);
}

enum class EqualCopy : std::uint8_t { all_gather, all_to_all, broadcast };
constexpr const char* kCopyRanges[] = {"weft::all_gather_into_tensor", "weft::all_to_all", "weft::broadcast"};

struct EqualWords {
  static constexpr std::string_view kKind = "equal_copy";
  EqualCopy operation;
  bool direct;
  std::uint32_t root, tag;
  std::uint64_t rows, row_bytes;
  detail::SymmetricWords place;
  std::string text() const {
    const std::string from = operation == EqualCopy::broadcast ? fmt::format(" root {}", root) : "";
    const auto number = std::min<std::size_t>(static_cast<std::size_t>(operation), std::size(kCopyRanges) - 1);
    return fmt::format("{} {} rows of {} bytes{}{}{} tag {}", detail::operation_in(kCopyRanges[number]), rows,
                       row_bytes, from, place.text(), detail::carrier(direct), tag);
  }
};

// A copy in which every rank has the same number of rows.
template <EqualCopy operation, class Args>
class CopyEqual : public detail::GroupCall {
 public:
  static constexpr const char* kRange = kCopyRanges[static_cast<int>(operation)];
  CopyEqual(const Group& caller, const Args& args) : GroupCall(caller, args.stream, args.launch), args_(args) {}

  void check() {
    const GroupState& group = channel();
    if constexpr (operation == EqualCopy::broadcast) {
      detail::check_root(group, args_.root);
    }
    check_shape(args_.rows, args_.row_bytes);
    find_tensors();
    detail::check_launch(group, args_.launch, detail::kMoveThreads);
    group.communicator().fabric().check_stream(stream());
    detail::check_extent(group, input_);
    detail::check_extent(group, output_);
    detail::check_overlap(input_, output_, place_in_output());
  }

  bool wants_nccl() const { return false; }
  detail::NcclPlan by_nccl() const {
    detail::check_side_by_side(channel(), detail::name_of_operation<CopyEqual>(), input_);
    detail::check_side_by_side(channel(), detail::name_of_operation<CopyEqual>(), output_);
    const std::uint64_t message = args_.rows * args_.row_bytes;
    detail::NcclWork work;
    if constexpr (operation == EqualCopy::all_gather) {
      work = detail::NcclAllGather{args_.input, args_.output, message};
    } else if constexpr (operation == EqualCopy::all_to_all) {
      work = detail::NcclAllToAll{args_.input, args_.output, message};
    } else {
      work = detail::NcclBroadcast{input_.data, args_.output, message, args_.root};
    }
    return {.name = name(), .work = work};
  }

  detail::CallName plan(bool) {
    const std::uint64_t message = args_.rows * args_.row_bytes;
    in_symmetric_.add(output_);
    const bool all_send = operation != EqualCopy::broadcast;
    plan_ = detail::plan_copy(channel(),
                              {.own = message,
                               .whole = output_.payload(),
                               .sent = all_send ? message * static_cast<std::uint64_t>(channel().size()) : message,
                               .symmetric = in_symmetric_.found(),
                               .launch = args_.launch});
    return name();
  }

  template <class Run>
  void each_step(Run run) const {
    const std::uint64_t rows = args_.rows;
    const detail::CopyWork<detail::EqualPartition, 1> work{
        .partition = {.rows = rows,
                      .input_step = operation == EqualCopy::all_to_all ? rows : 0,
                      .output_step = operation == EqualCopy::broadcast ? 0 : rows,
                      .sender = operation == EqualCopy::broadcast ? root() : detail::kEverybody,
                      .detour = plan_.detour,
                      .warp_groups = static_cast<std::uint32_t>(plan_.warp_groups)},
        .line_packs = plan_.slot_packs,
        .tensors = 1,
        .tensor = {detail::copy_tensor(input_, output_)}};
    const bool aligned16 = detail::rows_are_aligned16(input_.data, args_.row_bytes, input_.stride) &&
                           detail::rows_are_aligned16(output_.data, args_.row_bytes, output_.stride);
    run({.call = {}, .bound = in_symmetric_.serve(work, aligned16), .blocks = plan_.blocks, .threads = plan_.threads});
  }

 private:
  void find_tensors() {
    const auto size = static_cast<std::size_t>(channel().size()), rows = args_.rows;
    const std::size_t input_rows = operation == EqualCopy::all_to_all ? rows * size : rows;
    const std::size_t output_rows = operation == EqualCopy::broadcast ? rows : rows * size;
    output_ = detail::extent_of({"output", args_.output, output_rows, args_.row_bytes, args_.output_stride});
    // A rank that sends nothing has no input: nothing reads it.
    const bool sends = operation != EqualCopy::broadcast || channel().rank() == static_cast<int>(root());
    input_ =
        sends ? detail::extent_of({"input", args_.input, input_rows, args_.row_bytes, args_.input_stride}) : output_;
  }
  // The row of the output at which the input may begin.
  std::size_t place_in_output() const {
    switch (operation) {
      case EqualCopy::all_gather:
        return static_cast<std::size_t>(channel().rank()) * args_.rows;
      case EqualCopy::all_to_all:
        return detail::kNowhere;
      case EqualCopy::broadcast:
        return 0;
    }
    return detail::kNowhere;
  }
  std::uint32_t root() const {
    if constexpr (operation == EqualCopy::broadcast) return static_cast<std::uint32_t>(args_.root);
    return 0;
  }
  // A call by NCCL has nothing in symmetric memory.
  detail::CallName name() const {
    const std::uint64_t rows = args_.rows, row_bytes = args_.row_bytes;
    return {in_symmetric_.mark(
                detail::fingerprint(detail::name_of_operation<CopyEqual>(), rows, row_bytes, root(), args_.tag)),
            EqualWords{.operation = operation,
                       .direct = channel().direct(),
                       .root = root(),
                       .tag = args_.tag,
                       .rows = rows,
                       .row_bytes = row_bytes,
                       .place = in_symmetric_.words()}};
  }

  const Args& args_;
  Extent input_{}, output_{};
  detail::SymmetricPlace in_symmetric_{channel()};
  detail::MovePlan plan_{};
};

struct GatherWords {
  static constexpr std::string_view kKind = "all_gather_v";
  std::uint32_t tensors, group_ranks, tag;
  std::uint64_t row_bytes[kMaxGatheredTensors];
  detail::CountsWords counts;
  detail::SymmetricWords place;
  std::string text() const {
    const std::size_t known = std::min<std::size_t>(tensors, kMaxGatheredTensors);
    return fmt::format("all_gather_v rows of {} bytes{}, {}{}, tag {}", fmt::join(row_bytes, row_bytes + known, " + "),
                       group_ranks == 1 ? "" : fmt::format(", the same in groups of {}", group_ranks), counts.text(),
                       place.text(), tag);
  }
};

class GatherV : public detail::GroupCall {
 public:
  static constexpr const char* kRange = "weft::all_gather_v";
  static constexpr std::string_view kHint = detail::kCountsHint;
  GatherV(const Group& caller, const AllGatherVArgs& args) : GroupCall(caller, args.stream, args.launch), args_(args) {}

  void check();
  detail::CallName plan(bool);
  template <class Run>
  void each_step(Run run) const {
    if (auto step = detail::numbers_step(channel(), args_.counts)) run(std::move(*step));
    const auto make = [&](const auto& work) {
      run({.call = {},
           .bound = in_symmetric_.serve(work, all_whole_),
           .blocks = plan_.blocks,
           .threads = plan_.threads});
    };
    if (args_.group_ranks == 1) return make(work_);
    detail::CopyWork<detail::ReplicaPartition, detail::kMaxTensors> work{};
    static_cast<detail::CountedPartition&>(work.partition) = work_.partition;
    work.partition.self = static_cast<std::uint32_t>(channel().rank());
    work.partition.group_ranks = static_cast<std::uint32_t>(args_.group_ranks);
    work.partition.group_rows = args_.input_rows;
    work.partition.own_rows = std::numeric_limits<std::size_t>::max();  // the kernel compares the group's rows instead
    work.line_packs = work_.line_packs;
    work.tensors = work_.tensors;
    std::ranges::copy(work_.tensor, work.tensor);
    make(work);
  }

 private:
  const AllGatherVArgs& args_;
  std::array<Extent, kMaxGatheredTensors> inputs_, outputs_;  // as many as there are tensors
  bool all_whole_ = true;
  detail::CopyWork<detail::CountedPartition, detail::kMaxTensors> work_{};
  detail::SymmetricPlace in_symmetric_{channel()};
  detail::MovePlan plan_{};
};

void GatherV::check() {
  const GroupState& group = channel();
  const std::size_t most_tensors = kMaxGatheredTensors;
  require(!args_.tensors.empty() && args_.tensors.size() <= most_tensors, "tensors: {} is not between 1 and {}",
          args_.tensors.size(), most_tensors);
  detail::check_size("input_rows", args_.input_rows);
  detail::check_size("output_rows", args_.output_rows);
  const bool replicas = args_.group_ranks != 1;
  if (replicas) detail::check_group_ranks(group, args_.group_ranks, args_.counts);
  detail::check_counts(group, args_.counts);
  detail::check_launch(group, args_.launch, detail::kMoveThreads);
  group.communicator().fabric().check_stream(stream());
  const std::size_t place = replicas ? detail::kNowhere : detail::own_place(group, args_.counts);
  for (std::size_t number = 0; number < args_.tensors.size(); ++number) {
    const GatheredTensor& tensor = args_.tensors[number];
    const TensorNames& names = names_of(number);
    detail::check_size(names.row_bytes.c_str(), tensor.row_bytes);
    const Extent input =
        detail::extent_of({names.input.c_str(), tensor.input, args_.input_rows, tensor.row_bytes, tensor.input_stride});
    const Extent output = detail::extent_of(
        {names.output.c_str(), tensor.output, args_.output_rows, tensor.row_bytes, tensor.output_stride});
    detail::check_extent(group, input);
    detail::check_extent(group, output);
    detail::check_overlap(input, output, place);
    detail::check_numbers_apart(args_.counts, static_cast<std::size_t>(group.size()), output);
    for (std::size_t before = 0; before < number; ++before) {
      detail::check_overlap(output, outputs_[before], detail::kNowhere);
      detail::check_overlap(output, inputs_[before], detail::kNowhere);
      detail::check_overlap(input, outputs_[before], detail::kNowhere);
    }
    inputs_[number] = input;
    outputs_[number] = output;
  }
}

detail::CallName GatherV::plan(bool) {
  const GroupState& group = channel();
  GatherWords words{.tensors = static_cast<std::uint32_t>(args_.tensors.size()),
                    .group_ranks = static_cast<std::uint32_t>(args_.group_ranks),
                    .tag = args_.tag,
                    .row_bytes = {},
                    .counts = detail::words_of(args_.counts),
                    .place = {}};
  std::uint32_t fingerprint =
      detail::fingerprint("all_gather_v", args_.tensors.size(), detail::fingerprint(args_.counts), args_.tag);
  if (args_.group_ranks != 1) fingerprint = detail::fingerprint("replicas", fingerprint, args_.group_ranks);
  std::uint64_t own = 0, whole = 0;
  for (std::size_t number = 0; number < args_.tensors.size(); ++number) {
    const Extent &input = inputs_[number], &output = outputs_[number];
    const std::uint64_t row_bytes = input.row_bytes;
    work_.tensor[work_.tensors++] = detail::copy_tensor(input, output);
    all_whole_ = all_whole_ && detail::rows_are_aligned16(input.data, row_bytes, input.stride) &&
                 detail::rows_are_aligned16(output.data, row_bytes, output.stride);
    in_symmetric_.add(output);
    own += input.payload();
    whole += output.payload();
    fingerprint = detail::fingerprint("tensor", fingerprint, row_bytes);
    words.row_bytes[number] = row_bytes;
  }
  plan_ = detail::plan_copy(group, {.own = own / args_.group_ranks,
                                    .whole = whole,
                                    .sent = 0,
                                    .symmetric = in_symmetric_.found(),
                                    .launch = args_.launch});
  work_.partition = detail::counted_partition(group, args_.counts, false, args_.input_rows, args_.output_rows);
  work_.partition.detour_packs = plan_.detour_packs;
  work_.partition.warp_groups = static_cast<std::uint32_t>(plan_.warp_groups);
  work_.line_packs = plan_.slot_packs;
  words.place = in_symmetric_.words();
  return {in_symmetric_.mark(fingerprint), words, true};
}

}  // namespace

void all_gather_into_tensor(const Group& caller, const AllGatherArgs& args) {
  CopyEqual<EqualCopy::all_gather, AllGatherArgs> call(caller, args);
  detail::make_call(call);
}

void all_to_all(const Group& caller, const AllToAllArgs& args) {
  CopyEqual<EqualCopy::all_to_all, AllToAllArgs> call(caller, args);
  detail::make_call(call);
}

void broadcast(const Group& caller, const BroadcastArgs& args) {
  CopyEqual<EqualCopy::broadcast, BroadcastArgs> call(caller, args);
  detail::make_call(call);
}

void all_gather_v(const Group& caller, const AllGatherVArgs& args) {
  GatherV call(caller, args);
  detail::make_call(call);
}

}  // namespace weft
