// A slot's rows out of a tensor that holds all slots.
#include "weft/take.hpp"

#include <algorithm>

#include "base/fingerprint.hpp"
#include "base/nvtx.hpp"
#include "numeric/rows.hpp"
#include "ops/moves/move_plan.hpp"
#include "ops/moves/ragged.hpp"
#include "ops/moves/take_kernels.hpp"

namespace weft {
namespace {

using detail::Extent;
using detail::require;

static_assert(kMaxTakenSlots == detail::kMaxRanks);

void check_part(const char* which, const char* of, std::size_t part, std::size_t parts) {
  require(parts >= 1 && parts <= kMaxTakenSlots, "{}: {} is not between 1 and {}", of, parts, kMaxTakenSlots);
  require(part < parts, "{}: {} is not between 0 and {}", which, part, parts - 1);
}

// As many threads as there are packs, up to what keeps a GPU busy: no block waits for another.
int blocks_for(const detail::GroupState& group, std::size_t bytes) {
  const std::size_t most = 2 * static_cast<std::size_t>(group.communicator().fabric().max_blocks());
  const std::size_t packs = bytes / sizeof(detail::Pack) + 1;
  return static_cast<int>(std::clamp<std::size_t>(packs / detail::kMoveThreads, 1, most));
}

}  // namespace

void take_rows(const Group& caller, const TakeRowsArgs& args) {
  const detail::NvtxRange range("weft::take_rows");
  const Group handle = detail::held(caller);
  const detail::GroupState& group = handle.state();
  detail::check_size("row_bytes", args.row_bytes);
  detail::check_size("input_rows", args.input_rows);
  detail::check_size("output_rows", args.output_rows);
  check_part("slot", "slots", args.slot, args.slots);
  check_part("shard", "shards", args.shard, args.shards);
  detail::check_counts(group, args.counts);
  require(args.counts.split != Split::none || args.shards == 1,
          "counts.split: none is not balanced or ceil, and there are {} shards", args.shards);
  const Extent input = detail::extent_of({"input", args.input, args.input_rows, args.row_bytes, args.input_stride});
  const Extent output =
      detail::extent_of({"output", args.output, args.output_rows, args.row_bytes, args.output_stride});
  detail::check_extent(group, input);
  detail::check_extent(group, output);
  detail::check_overlap(output, input, detail::kNowhere);
  group.communicator().fabric().check_stream(args.stream);
  detail::check_alive(handle, "take_rows");

  // The table of slots is everybody's; what this rank needs of it is looked at behind it.
  Counts slots = args.counts;
  slots.split = Split::none;
  detail::check_numbers_apart(slots, args.slots, output);
  detail::CountedShares shares = detail::counted_shares(group, slots, false, SIZE_MAX, args.input_rows);
  shares.ranks = static_cast<std::uint32_t>(args.slots);
  const bool whole = detail::rows_may_be_whole(input.data, input.row_bytes, input.stride) &&
                     detail::rows_may_be_whole(output.data, output.row_bytes, output.stride);
  const detail::CallName name{
      detail::fingerprint("take_rows", args.row_bytes, args.slots, args.slot, args.shards, args.shard,
                          detail::fingerprint(args.counts)),
      fmt::format("take_rows of {} bytes, slot {} of {}, shard {} of {}, {}", args.row_bytes, args.slot, args.slots,
                  args.shard, args.shards, detail::describe(args.counts))};
  detail::make_call(handle, {.name = name,
                             .bound = detail::find_kernel(detail::TakeQuery{.whole = whole})
                                          .with({.slots = shares,
                                                 .slot = static_cast<std::uint32_t>(args.slot),
                                                 .shards = static_cast<std::uint32_t>(args.shards),
                                                 .shard = static_cast<std::uint32_t>(args.shard),
                                                 .split = args.counts.split,
                                                 .split_slots = args.split_slots,
                                                 .input = input.data,
                                                 .output = const_cast<void*>(output.data),
                                                 .row_bytes = input.row_bytes,
                                                 .input_stride = input.stride,
                                                 .output_stride = output.stride,
                                                 .output_rows = args.output_rows}),
                             .blocks = blocks_for(group, output.payload()),
                             .threads = detail::kMoveThreads,
                             .stream = args.stream});
}

}  // namespace weft
