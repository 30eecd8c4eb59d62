#include "weft/columns.hpp"

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
#include "ops/moves/symmetric_outputs.hpp"

namespace weft {
namespace {

using detail::Extent;
using detail::GroupState;
using detail::require;

struct ColumnWords {
  static constexpr std::string_view kKind = "all_gather_columns";
  detail::ColumnChange change;
  std::uint32_t tag;
  std::uint64_t rows, shard_columns, columns;
  bool even_shards;
  detail::SymmetricWords place;
  std::string text() const {
    return fmt::format("all_gather_columns {} rows of {}[{}]{}{}{} tag {}", rows, name(change.type), shard_columns,
                       detail::text_of(columns, even_shards), change.text(), place.text(), tag);
  }
};

class GatherColumns : public detail::GroupCall {
 public:
  static constexpr const char* kRange = "weft::all_gather_columns";
  GatherColumns(const Group& caller, const AllGatherColumnsArgs& args)
      : GroupCall(caller, args.stream, args.launch),
        args_(args),
        change_{args.type, args.output_f32, args.scale, args.soft_cap} {}

  void check() {
    const GroupState& group = channel();
    change_.check();
    detail::check_size("rows", args_.rows);
    shares_ = detail::ColumnNumbers{args_.shard_columns, args_.columns, args_.even_shards}.shares(group);
    detail::check_launch(group, args_.launch, detail::kMoveThreads);
    group.communicator().fabric().check_stream(stream());
    find_tensors();
    detail::check_extent(group, input_);
    detail::check_extent(group, output_);
    if (!is_in_place()) detail::check_overlap(output_, input_, detail::kNowhere);
  }

  detail::CallName plan(bool) {
    if (whole_packs() && !change_.widens()) in_symmetric_.add(output_);
    plan_ = detail::plan_copy(channel(), {.own = input_.payload(),
                                          .whole = input_.payload() * static_cast<std::uint64_t>(channel().size()),
                                          .sent = 0,
                                          .symmetric = in_symmetric_.found(),
                                          .launch = args_.launch});
    const std::uint32_t fingerprint =
        detail::fingerprint("all_gather_columns", args_.rows, args_.shard_columns, shares_.all, args_.even_shards,
                            change_.fingerprint(), args_.tag);
    return {in_symmetric_.mark(fingerprint), ColumnWords{.change = change_,
                                                         .tag = args_.tag,
                                                         .rows = args_.rows,
                                                         .shard_columns = args_.shard_columns,
                                                         .columns = shares_.all,
                                                         .even_shards = args_.even_shards,
                                                         .place = in_symmetric_.words()}};
  }

  template <class Run>
  void each_step(Run run) const {
    const bool aligned16 =
        whole_packs() && detail::rows_are_aligned16(input_.data, input_.row_bytes, input_.stride) &&
        detail::rows_are_aligned16(output_.data, input_.row_bytes * change_.widening(), output_.stride);
    const auto serve = [&](const auto& partition) {
      using Partition = std::remove_cvref_t<decltype(partition)>;
      const detail::CopyWork<Partition, 1> work{.partition = partition,
                                                .line_packs = plan_.slot_packs,
                                                .tensors = 1,
                                                .tensor = {detail::copy_tensor(input_, output_)}};
      run({.call = {},
           .bound = in_symmetric_.serve(work, aligned16),
           .blocks = plan_.blocks,
           .threads = plan_.threads});
    };
    const detail::EqualPartition equal{.rows = args_.rows,
                                       .input_step = 0,
                                       .output_step = 0,
                                       .sender = detail::kEverybody,
                                       .warp_groups = static_cast<std::uint32_t>(plan_.warp_groups)};
    const auto element = static_cast<std::uint32_t>(size_of(args_.type));
    if (change_.is_any()) {
      serve(detail::ColumnPartition<true>{equal, {shares_, element, change_.map()}});
    } else {
      serve(detail::ColumnPartition<false>{equal, {shares_, element, {}}});
    }
  }

 private:
  void find_tensors() {
    const std::size_t element = size_of(args_.type);
    input_ = detail::extent_of({"input", args_.input, args_.rows, args_.shard_columns, args_.input_stride, element});
    output_ = detail::extent_of(
        {"output", args_.output, args_.rows, shares_.all, args_.output_stride, element * change_.widening()});
  }
  bool whole_packs() const {
    return input_.row_bytes % sizeof(detail::Pack) == 0 && shares_.are_whole_packs(size_of(args_.type));
  }
  // Elements that change must not change before all peers have them. Peers write where pads of even shards would lie.
  bool is_in_place() const {
    const auto* const own =
        static_cast<const std::byte*>(output_.data) + static_cast<std::size_t>(channel().rank()) * input_.row_bytes;
    return !change_.is_any() && !args_.even_shards && input_.data == own &&
           (input_.stride == output_.stride || args_.rows <= 1) &&
           static_cast<std::size_t>(channel().rank() + 1) * args_.shard_columns <= shares_.all;
  }

  const AllGatherColumnsArgs& args_;
  detail::ColumnChange change_;
  detail::ColumnShares shares_{};
  Extent input_{}, output_{};
  detail::SymmetricPlace in_symmetric_{channel()};
  detail::MovePlan plan_{};
};

}  // namespace

void all_gather_columns(const Group& caller, const AllGatherColumnsArgs& args) {
  GatherColumns call(caller, args);
  detail::make_call(call);
}

}  // namespace weft
