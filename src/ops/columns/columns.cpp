#include "weft/columns.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "base/enum_text.hpp"
#include "base/fingerprint.hpp"
#include "comm/call.hpp"
#include "numeric/rows.hpp"
#include "ops/columns/column_kernels.hpp"
#include "ops/moves/copy_plan.hpp"
#include "ops/moves/symmetric_outputs.hpp"

namespace weft {
namespace {

using detail::Extent;
using detail::GroupState;
using detail::require;

struct ColumnWords {
  static constexpr std::string_view kKind = "all_gather_columns";
  DataType type;
  bool output_f32;
  float scale, soft_cap;
  std::uint32_t tag;
  std::uint64_t rows, shard_columns, columns;
  detail::SymmetricWords place;
  std::string text() const {
    std::string change = output_f32 ? " to f32" : "";
    if (scale != 1.0f) change += fmt::format(" scale {}", scale);
    if (soft_cap != 0) change += fmt::format(" soft_cap {}", soft_cap);
    return fmt::format("all_gather_columns {} rows of {}[{}] of {} columns{}{} tag {}", rows, name(type), shard_columns,
                       columns, change, place.text(), tag);
  }
};

class GatherColumns : public detail::GroupCall {
 public:
  static constexpr const char* kRange = "weft::all_gather_columns";
  GatherColumns(const Group& caller, const AllGatherColumnsArgs& args) : GroupCall(caller, args.stream), args_(args) {}

  void check() {
    const GroupState& group = channel();
    detail::check_choice("type", args_.type, DataType::u8);
    const bool changes = args_.output_f32 || args_.scale != 1.0f || args_.soft_cap != 0;
    mapped_ = changes && !(args_.type == DataType::f32 && args_.scale == 1.0f && args_.soft_cap == 0);
    require(!changes || args_.type <= DataType::f32,
            "type: {} is not bf16, f16 or f32, and output_f32, scale or soft_cap changes elements", name(args_.type));
    require(std::isfinite(args_.scale), "scale: {} is not finite", args_.scale);
    require(std::isfinite(args_.soft_cap) && args_.soft_cap >= 0, "soft_cap: {} is not finite, 0 or above",
            args_.soft_cap);
    factor_ = args_.soft_cap != 0 ? args_.scale / args_.soft_cap : args_.scale;
    require(std::isfinite(factor_) && (factor_ == 0) == (args_.scale == 0),
            "scale: {} over a soft_cap of {} is beyond the range of f32", args_.scale, args_.soft_cap);
    detail::check_size("rows", args_.rows);
    detail::check_size("shard_columns", args_.shard_columns);
    const std::size_t most = args_.shard_columns * static_cast<std::size_t>(group.size());
    require(args_.columns <= most, "columns: {} is not between 0 and {}, the size · shard_columns", args_.columns,
            most);
    columns_ = args_.columns != 0 ? args_.columns : most;
    detail::check_launch(group, args_.launch, detail::kMoveThreads);
    group.communicator().fabric().check_stream(stream());
    find_tensors();
    detail::check_extent(group, input_);
    detail::check_extent(group, output_);
    if (!is_in_place()) detail::check_overlap(output_, input_, detail::kNowhere);
  }

  detail::CallName plan(bool) {
    const bool whole_packs = input_.row_bytes % sizeof(detail::Pack) == 0;
    if (whole_packs && widening_ == 1) in_symmetric_.add(output_);
    plan_ = detail::plan_copy(channel(), {.own = input_.payload(),
                                          .whole = input_.payload() * static_cast<std::uint64_t>(channel().size()),
                                          .sent = 0,
                                          .symmetric = in_symmetric_.found(),
                                          .launch = args_.launch});
    const std::uint32_t fingerprint = detail::fingerprint(
        "all_gather_columns", args_.rows, args_.shard_columns, columns_, args_.type, args_.output_f32,
        detail::bits_of<std::uint32_t>(args_.scale), detail::bits_of<std::uint32_t>(args_.soft_cap), args_.tag);
    return {in_symmetric_.mark(fingerprint), ColumnWords{.type = args_.type,
                                                         .output_f32 = args_.output_f32,
                                                         .scale = args_.scale,
                                                         .soft_cap = args_.soft_cap,
                                                         .tag = args_.tag,
                                                         .rows = args_.rows,
                                                         .shard_columns = args_.shard_columns,
                                                         .columns = columns_,
                                                         .place = in_symmetric_.words()}};
  }

  template <class Run>
  void each_step(Run run) const {
    const bool aligned16 = detail::rows_are_aligned16(input_.data, input_.row_bytes, input_.stride) &&
                           detail::rows_are_aligned16(output_.data, input_.row_bytes * widening_, output_.stride);
    const auto serve = [&](const auto& partition) {
      using Partition = std::remove_cvref_t<decltype(partition)>;
      const detail::CopyWork<Partition, 1> work{.partition = partition,
                                                .line_packs = plan_.slot_packs,
                                                .tensors = 1,
                                                .tensor = {{.input = input_.data,
                                                            .output = const_cast<void*>(output_.data),
                                                            .row_bytes = input_.row_bytes,
                                                            .input_stride = input_.stride,
                                                            .output_stride = output_.stride}}};
      run({.call = {},
           .bound = in_symmetric_.serve(work, aligned16),
           .blocks = plan_.blocks,
           .threads = plan_.threads});
    };
    const detail::EqualPartition shares{.rows = args_.rows,
                                        .input_step = 0,
                                        .output_step = 0,
                                        .sender = detail::kEverybody,
                                        .warp_groups = static_cast<std::uint32_t>(plan_.warp_groups)};
    const std::uint64_t columns_bytes = columns_ * size_of(args_.type);
    if (mapped_) {
      const DataType to = args_.output_f32 ? DataType::f32 : args_.type;
      serve(detail::ColumnPartition<true>{
          shares, columns_bytes, {.from = args_.type, .to = to, .factor = factor_, .soft_cap = args_.soft_cap}});
    } else {
      serve(detail::ColumnPartition<false>{shares, columns_bytes});
    }
  }

 private:
  void find_tensors() {
    const std::size_t element = size_of(args_.type);
    widening_ = args_.output_f32 && args_.type != DataType::f32 ? 2 : 1;
    input_ = detail::extent_of({"input", args_.input, args_.rows, args_.shard_columns, args_.input_stride, element});
    output_ =
        detail::extent_of({"output", args_.output, args_.rows, columns_, args_.output_stride, element * widening_});
  }
  // Elements that change must not change before all peers have them.
  bool is_in_place() const {
    const auto* const own =
        static_cast<const std::byte*>(output_.data) + static_cast<std::size_t>(channel().rank()) * input_.row_bytes;
    return !mapped_ && input_.data == own && (input_.stride == output_.stride || args_.rows <= 1) &&
           static_cast<std::size_t>(channel().rank() + 1) * args_.shard_columns <= columns_;
  }

  const AllGatherColumnsArgs& args_;
  bool mapped_ = false;
  float factor_ = 1.0f;
  std::size_t columns_ = 0, widening_ = 1;
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
