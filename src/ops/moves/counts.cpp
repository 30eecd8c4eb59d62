// Counts that ranks tell each other.
#include "weft/counts.hpp"

#include <algorithm>

#include "base/choices.hpp"
#include "base/fingerprint.hpp"
#include "base/nvtx.hpp"
#include "ops/moves/move_kernels.hpp"
#include "ops/moves/ragged.hpp"

namespace weft {
namespace {

using detail::Extent;
using detail::GroupState;
using detail::require;

Extent words(const char* name, const std::int32_t* data, std::size_t count) {
  return {.name = name,
          .data = data,
          .rows = 1,
          .row_bytes = count * sizeof(std::int32_t),
          .stride = count * sizeof(std::int32_t),
          .alignment = sizeof(std::int32_t)};
}

void check_shape(const GroupState& group, const AllGatherCountsArgs& args) {
  const std::size_t most = std::min<std::size_t>(kMaxCountColumns, 2 * group.layout().one_shot_packs);
  require(args.columns >= 1 && args.columns <= most, "columns: {} is not between 1 and {}", args.columns, most);
  const auto size = static_cast<std::size_t>(group.size());
  require(args.group_ranks >= 1 && args.group_ranks <= size && size % args.group_ranks == 0,
          "group_ranks: {} is not a divisor of the group's size, {}", args.group_ranks, size);
  detail::check_choice("split", args.split, Split::ceil);
  detail::check_slots("slot", args.slot, SlotKind::fixed, args.slot_rows);
  require(args.split != Split::none || args.group_ranks == 1,
          "split: none is not balanced or ceil, and group_ranks {} share a group's rows", args.group_ranks);
}

void check_memory(const GroupState& group, const AllGatherCountsArgs& args, std::size_t output_words) {
  const Extent input = words("input", args.input, args.columns);
  const Extent output = words("output", args.output, output_words);
  detail::check_extent(group, input);
  detail::check_extent(group, output);
  detail::check_overlap(input, output, detail::kNowhere);
  if (args.host_output == nullptr) return;
  const Extent host_output = words("host_output", args.host_output, output_words);
  detail::check_extent(group, host_output);
  detail::check_overlap(host_output, output, detail::kNowhere);
  detail::check_overlap(input, host_output, detail::kNowhere);
}

}  // namespace

static void make_all_gather_counts(const Group& handle, const AllGatherCountsArgs& args) {
  const GroupState& group = handle.state();
  check_shape(group, args);
  const GatheredCounts parts{
      .ranks = static_cast<std::size_t>(group.size()), .columns = args.columns, .group_ranks = args.group_ranks};
  const Counts counts{.slot = args.slot, .slot_rows = args.slot_rows};  // as those who read the outcome say it
  check_memory(group, args, parts.words());
  group.communicator().fabric().check_stream(args.stream);
  detail::check_ready(handle, "all_gather_counts");
  detail::CountsWork work = detail::counts_work(parts);
  work.input = args.input;
  work.output = args.output;
  work.host_output = args.host_output;
  work.split = args.split;
  work.split_slots = args.split_slots;
  work.slot = args.slot;
  work.slot_rows = detail::counted_shares(group, counts, false, 0, 0).slot_rows;
  const std::size_t lines = parts.ranks * work.lines();
  const detail::BoundKernel bound = detail::find_kernel(detail::CountsQuery{}).with(work);
  detail::make_call(
      handle, {.name = {detail::fingerprint("all_gather_counts", args.columns, args.group_ranks, args.split,
                                            args.split_slots, detail::fingerprint(counts), args.tag),
                        fmt::format("all_gather_counts columns {}, group_ranks {}, {}{} split {}, tag {}", args.columns,
                                    args.group_ranks, detail::describe(counts), args.split_slots ? "," : ", rows",
                                    name(args.split), args.tag)},
               .bound = bound,
               .blocks = 2,
               .threads = static_cast<int>(std::clamp<std::size_t>((lines + 31) / 32 * 32, 64, detail::kMoveThreads)),
               .stream = args.stream});
}

void all_gather_counts(const Group& caller, const AllGatherCountsArgs& args) {
  const detail::NvtxRange range("weft::all_gather_counts");
  const Group handle = detail::held(caller);
  detail::make_or_tell(handle.state(), args.stream, [&] { make_all_gather_counts(handle, args); });
}

}  // namespace weft
