// Takes a slot's rows out of a tensor that holds all slots.
#include "weft/take.hpp"

#include <algorithm>

#include "base/fingerprint.hpp"
#include "comm/call.hpp"
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

// As many threads as there are packs, up to a number that keeps a GPU busy: no block waits for another.
int blocks_for(const detail::GroupState& group, std::size_t bytes) {
  const std::size_t most = 2 * static_cast<std::size_t>(group.communicator().fabric().max_blocks());
  const std::size_t packs = bytes / sizeof(detail::Pack) + 1;
  return static_cast<int>(std::clamp<std::size_t>(packs / detail::kMoveThreads, 1, most));
}

struct TakeWords {
  static constexpr std::string_view kKind = "take_rows";
  std::uint64_t row_bytes;
  std::uint32_t slot, slots, shard, shards;
  detail::CountsWords counts;
  std::string text() const {
    return fmt::format("take_rows of {} bytes, slot {} of {}, shard {} of {}, {}", row_bytes, slot, slots, shard,
                       shards, counts.text());
  }
};

class TakeRows : public detail::GroupCall {
 public:
  static constexpr const char* kRange = "weft::take_rows";
  static constexpr bool kPeersWait = false, kInTurn = false;
  TakeRows(const Group& caller, const TakeRowsArgs& args) : GroupCall(caller, args.stream), args_(args) {}

  void check() {
    const detail::GroupState& group = channel();
    detail::check_size("row_bytes", args_.row_bytes);
    detail::check_size("input_rows", args_.input_rows);
    detail::check_size("output_rows", args_.output_rows);
    check_part("slot", "slots", args_.slot, args_.slots);
    check_part("shard", "shards", args_.shard, args_.shards);
    require(!args_.counts.on_host, "counts.on_host: true; with counts on the host, slots_of() says where its rows are");
    detail::check_counts(group, args_.counts);
    require(args_.counts.sharding != Sharding::none || args_.shards == 1,
            "counts.sharding: none is not balanced or ceil, and there are {} shards", args_.shards);
    input_ = detail::extent_of({"input", args_.input, args_.input_rows, args_.row_bytes, args_.input_stride});
    output_ = detail::extent_of({"output", args_.output, args_.output_rows, args_.row_bytes, args_.output_stride});
    detail::check_extent(group, input_);
    detail::check_extent(group, output_);
    detail::check_overlap(output_, input_, detail::kNowhere);
    group.communicator().fabric().check_stream(stream());
    detail::check_numbers_apart(slots(), args_.slots, output_);
  }

  detail::CallName plan(bool) const {
    return {detail::fingerprint("take_rows", args_.row_bytes, args_.slots, args_.slot, args_.shards, args_.shard,
                                detail::fingerprint(args_.counts)),
            TakeWords{.row_bytes = args_.row_bytes,
                      .slot = static_cast<std::uint32_t>(args_.slot),
                      .slots = static_cast<std::uint32_t>(args_.slots),
                      .shard = static_cast<std::uint32_t>(args_.shard),
                      .shards = static_cast<std::uint32_t>(args_.shards),
                      .counts = detail::words_of(args_.counts)}};
  }

  template <class Run>
  void each_step(Run run) const {
    detail::CountedPartition partition =
        detail::counted_partition(channel(), slots(), false, SIZE_MAX, args_.input_rows);
    partition.ranks = static_cast<std::uint32_t>(args_.slots);
    const bool aligned16 = detail::rows_are_aligned16(input_.data, input_.row_bytes, input_.stride) &&
                           detail::rows_are_aligned16(output_.data, output_.row_bytes, output_.stride);
    run({.call = {},
         .bound = detail::find_kernel(detail::TakeQuery{.aligned16 = aligned16})
                      .with({.slots = partition,
                             .slot = static_cast<std::uint32_t>(args_.slot),
                             .shards = static_cast<std::uint32_t>(args_.shards),
                             .shard = static_cast<std::uint32_t>(args_.shard),
                             .sharding = args_.counts.sharding,
                             .split_slots = args_.split_slots,
                             .input = input_.data,
                             .output = const_cast<void*>(output_.data),
                             .row_bytes = input_.row_bytes,
                             .input_stride = input_.stride,
                             .output_stride = output_.stride,
                             .output_rows = args_.output_rows}),
         .blocks = blocks_for(channel(), output_.payload()),
         .threads = detail::kMoveThreads});
  }

 private:
  // The table holds all slots; the kernel then finds this rank's part.
  Counts slots() const {
    Counts all = args_.counts;
    all.sharding = Sharding::none;
    return all;
  }

  const TakeRowsArgs& args_;
  Extent input_{}, output_{};
};

}  // namespace

void take_rows(const Group& caller, const TakeRowsArgs& args) {
  TakeRows call(caller, args);
  detail::make_call(call);
}

}  // namespace weft
