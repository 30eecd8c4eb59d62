// all_to_all_columns(): each group of neighbours gets all columns of its own rows.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "base/enum_text.hpp"
#include "base/fingerprint.hpp"
#include "comm/call.hpp"
#include "numeric/rows.hpp"
#include "ops/columns/column_change.hpp"
#include "ops/columns/column_kernels.hpp"
#include "ops/columns/column_numbers.hpp"
#include "ops/moves/copy_plan.hpp"
#include "ops/moves/ragged.hpp"
#include "weft/columns.hpp"

namespace weft {
namespace {

using detail::Extent;
using detail::GroupState;
using detail::require;

struct GroupColumnWords {
  static constexpr std::string_view kKind = "all_to_all_columns";
  detail::ColumnChange change;
  std::uint32_t group_ranks, tag;
  std::uint64_t shard_columns, columns;
  bool even_shards;
  detail::CountsWords counts;
  std::string text() const {
    return fmt::format("all_to_all_columns rows of {}[{}]{}{} to groups of {}, {}, tag {}", name(change.type),
                       shard_columns, detail::text_of(columns, even_shards), change.text(), group_ranks, counts.text(),
                       tag);
  }
};

class ExchangeColumns : public detail::GroupCall {
 public:
  static constexpr const char* kRange = "weft::all_to_all_columns";
  static constexpr std::string_view kHint = detail::kCountsHint;
  ExchangeColumns(const Group& caller, const AllToAllColumnsArgs& args)
      : GroupCall(caller, args.stream, args.launch),
        args_(args),
        change_{args.type, args.output_f32, args.scale, args.soft_cap} {}

  void check() {
    const GroupState& group = channel();
    change_.check();
    const auto size = static_cast<std::size_t>(group.size());
    detail::check_group_ranks(group, args_.group_ranks);
    shares_ = detail::ColumnNumbers{args_.shard_columns, args_.columns, args_.even_shards}.shares(group);
    detail::check_size("input_rows", args_.input_rows);
    detail::check_size("output_rows", args_.output_rows);
    detail::check_counts(group, args_.counts, args_.group_ranks);
    detail::check_launch(group, args_.launch, detail::kMoveThreads);
    group.communicator().fabric().check_stream(stream());
    const std::size_t element = size_of(args_.type);
    input_ =
        detail::extent_of({"input", args_.input, args_.input_rows, args_.shard_columns, args_.input_stride, element});
    output_ = detail::extent_of(
        {"output", args_.output, args_.output_rows, shares_.all, args_.output_stride, element * change_.widening()});
    detail::check_extent(group, input_);
    detail::check_extent(group, output_);
    detail::check_overlap(output_, input_, detail::kNowhere);
    detail::check_numbers_apart(args_.counts, size / args_.group_ranks, output_);
  }

  detail::CallName plan(bool) {
    const auto size = static_cast<std::uint64_t>(channel().size());
    const std::uint64_t for_one = std::min(args_.input_rows, args_.output_rows) * input_.row_bytes;
    // A rank whose group has no rows still sends all others theirs, to each rank of a group.
    const std::uint64_t whole = std::max(for_one * size, input_.payload() * args_.group_ranks);
    plan_ = detail::plan_copy(channel(),
                              {.own = for_one, .whole = whole, .sent = 0, .symmetric = false, .launch = args_.launch});
    const std::uint32_t fingerprint =
        detail::fingerprint("all_to_all_columns", args_.shard_columns, shares_.all, args_.even_shards,
                            change_.fingerprint(), args_.group_ranks, detail::fingerprint(args_.counts), args_.tag);
    return {fingerprint,
            GroupColumnWords{.change = change_,
                             .group_ranks = static_cast<std::uint32_t>(args_.group_ranks),
                             .tag = args_.tag,
                             .shard_columns = args_.shard_columns,
                             .columns = shares_.all,
                             .even_shards = args_.even_shards,
                             .counts = detail::words_of(args_.counts)},
            true};
  }

  template <class Run>
  void each_step(Run run) const {
    if (auto step = detail::numbers_step(channel(), args_.counts, args_.group_ranks)) run(std::move(*step));
    const bool aligned16 =
        shares_.are_whole_packs(size_of(args_.type)) &&
        detail::rows_are_aligned16(input_.data, input_.row_bytes, input_.stride) &&
        detail::rows_are_aligned16(output_.data, input_.row_bytes * change_.widening(), output_.stride);
    const auto serve = [&]<bool mapped>(const detail::ColumnPlaces<mapped>& places) {
      using Partition = detail::GroupColumnPartition<mapped>;
      detail::CountedPartition counted =
          detail::counted_partition(channel(), args_.counts, false, args_.output_rows, args_.input_rows);
      counted.ranks /= static_cast<std::uint32_t>(args_.group_ranks);
      counted.warp_groups = static_cast<std::uint32_t>(plan_.warp_groups);
      const detail::CopyWork<Partition, 1> work{
          .partition = {counted, places, static_cast<std::uint32_t>(args_.group_ranks)},
          .line_packs = plan_.slot_packs,
          .tensors = 1,
          .tensor = {detail::copy_tensor(input_, output_)}};
      run({.call = {},
           .bound = find_kernel(detail::CopyQuery<Partition, 1>{.aligned16 = aligned16}).with(work),
           .blocks = plan_.blocks,
           .threads = plan_.threads});
    };
    const auto element = static_cast<std::uint32_t>(size_of(args_.type));
    if (change_.is_any()) {
      serve(detail::ColumnPlaces<true>{shares_, element, change_.map()});
    } else {
      serve(detail::ColumnPlaces<false>{shares_, element, {}});
    }
  }

 private:
  const AllToAllColumnsArgs& args_;
  detail::ColumnChange change_;
  detail::ColumnShares shares_{};
  Extent input_{}, output_{};
  detail::MovePlan plan_{};
};

}  // namespace

void all_to_all_columns(const Group& caller, const AllToAllColumnsArgs& args) {
  ExchangeColumns call(caller, args);
  detail::make_call(call);
}

}  // namespace weft
