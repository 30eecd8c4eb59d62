// Ranks exchange counts.
#include "weft/counts.hpp"

#include <algorithm>

#include "base/enum_text.hpp"
#include "base/fingerprint.hpp"
#include "comm/call.hpp"
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
  detail::check_choice("sharding", args.sharding, Sharding::ceil);
  detail::check_padding("padding", "slot_rows", args.padding, Padding::fixed, args.slot_rows);
  require(args.sharding != Sharding::none || args.group_ranks == 1,
          "sharding: none is not balanced or ceil, and group_ranks {} share a group's rows", args.group_ranks);
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

struct CountsGatherWords {
  static constexpr std::string_view kKind = "all_gather_counts";
  bool split_slots;
  Sharding sharding;
  std::uint32_t tag;
  std::uint64_t columns, group_ranks;
  detail::CountsWords counts;
  std::string text() const {
    return fmt::format("all_gather_counts columns {}, group_ranks {}, {}{} sharding {}, tag {}", columns, group_ranks,
                       counts.text(), split_slots ? "," : ", rows", name(sharding), tag);
  }
};

class GatherCounts : public detail::GroupCall {
 public:
  static constexpr const char* kRange = "weft::all_gather_counts";
  GatherCounts(const Group& caller, const AllGatherCountsArgs& args) : GroupCall(caller, args.stream), args_(args) {}

  void check() {
    check_shape(channel(), args_);
    parts_ = {.ranks = static_cast<std::size_t>(channel().size()),
              .columns = args_.columns,
              .group_ranks = args_.group_ranks};
    check_memory(channel(), args_, parts_.words());
    channel().communicator().fabric().check_stream(stream());
  }

  detail::CallName plan(bool) const {
    return {detail::fingerprint("all_gather_counts", args_.columns, args_.group_ranks, args_.sharding,
                                args_.split_slots, detail::fingerprint(counts()), args_.tag),
            CountsGatherWords{.split_slots = args_.split_slots,
                              .sharding = args_.sharding,
                              .tag = args_.tag,
                              .columns = args_.columns,
                              .group_ranks = args_.group_ranks,
                              .counts = detail::words_of(counts())}};
  }

  template <class Run>
  void each_step(Run run) const {
    detail::CountsWork work = detail::counts_work(parts_);
    work.input = args_.input;
    work.output = args_.output;
    work.host_output = args_.host_output;
    work.sharding = args_.sharding;
    work.split_slots = args_.split_slots;
    work.padding = args_.padding;
    work.slot_rows = detail::counted_partition(channel(), counts(), false, 0, 0).slot_rows;
    const std::size_t lines = parts_.ranks * work.lines();
    run({.call = {},
         .bound = detail::find_kernel(detail::CountsQuery{}).with(work),
         .blocks = 2,
         .threads = static_cast<int>(std::clamp<std::size_t>((lines + 31) / 32 * 32, 64, detail::kMoveThreads))});
  }

 private:
  // The outcome in its readers' form.
  Counts counts() const { return {.padding = args_.padding, .slot_rows = args_.slot_rows}; }

  const AllGatherCountsArgs& args_;
  GatheredCounts parts_{};
};

}  // namespace

void all_gather_counts(const Group& caller, const AllGatherCountsArgs& args) {
  GatherCounts call(caller, args);
  detail::make_call(call);
}

}  // namespace weft
