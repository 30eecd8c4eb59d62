#include "weft/top_k.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>

#include "base/enum_text.hpp"
#include "base/fingerprint.hpp"
#include "comm/call.hpp"
#include "ops/columns/column_numbers.hpp"
#include "ops/top_k/top_k_kernels.hpp"

namespace weft {
namespace {

using detail::Extent;
using detail::GroupState;
using detail::require;

struct TopKWords {
  static constexpr std::string_view kKind = "top_k_columns";
  DataType type;
  std::uint32_t tag;
  std::uint64_t k, rows, shard_columns, columns;
  bool even_shards;
  std::string text() const {
    return fmt::format("top_k_columns {} of {} rows of {}[{}]{} tag {}", k, rows, name(type), shard_columns,
                       detail::text_of(columns, even_shards), tag);
  }
};

class TopK : public detail::GroupCall {
 public:
  static constexpr const char* kRange = "weft::top_k_columns";
  TopK(const Group& caller, const TopKColumnsArgs& args) : GroupCall(caller, args.stream, args.launch), args_(args) {}

  void check() {
    const GroupState& group = channel();
    detail::check_choice("type", args_.type, DataType::f32);
    detail::check_size("rows", args_.rows);
    constexpr std::size_t kMostColumns = std::numeric_limits<std::int32_t>::max();
    require(args_.shard_columns <= kMostColumns, "shard_columns: {} is not between 0 and {}", args_.shard_columns,
            kMostColumns);
    shares_ = detail::ColumnNumbers{args_.shard_columns, args_.columns, args_.even_shards}.shares(group);
    require(shares_.all <= kMostColumns, "columns: {} of all ranks are not between 0 and {}", shares_.all,
            kMostColumns);
    const std::size_t most_k =
        std::min({kMaxCandidates, std::size_t{shares_.all}, std::size_t{group.layout().two_shot_packs}});
    require(args_.k >= 1 && args_.k <= most_k, "k: {} is not between 1 and {}", args_.k, most_k);
    detail::check_launch(group, args_.launch, detail::kTopKThreads);
    group.communicator().fabric().check_stream(stream());
    const std::size_t element = size_of(args_.type);
    input_ = detail::extent_of({"input", args_.input, args_.rows, args_.shard_columns, args_.input_stride, element});
    const Extent indices = detail::extent_of({"indices", args_.indices, args_.rows, args_.k, 0, sizeof(std::int32_t)});
    const Extent values =
        detail::extent_of({"values", args_.values, args_.values != nullptr ? args_.rows : 0, args_.k, 0, element});
    for (const Extent& extent : {input_, indices, values}) detail::check_extent(group, extent);
    for (const Extent& output : {indices, values}) detail::check_overlap(output, input_, detail::kNowhere);
    detail::check_overlap(values, indices, detail::kNowhere);
  }

  detail::CallName plan(bool) {
    parts_ = detail::parts_of_row(args_.rows, args_.shard_columns, args_.k);
    const std::uint64_t room = channel().layout().two_shot_packs;
    if (parts_ * args_.k > room) parts_ = 1;
    step_rows_ = room / (parts_ * args_.k);
    return {detail::fingerprint("top_k_columns", args_.rows, args_.shard_columns, shares_.all, args_.even_shards,
                                args_.k, args_.type, args_.tag),
            TopKWords{.type = args_.type,
                      .tag = args_.tag,
                      .k = args_.k,
                      .rows = args_.rows,
                      .shard_columns = args_.shard_columns,
                      .columns = shares_.all,
                      .even_shards = args_.even_shards}};
  }

  template <class Run>
  void each_step(Run run) const {
    const auto kernel = detail::find_kernel(detail::TopKQuery{.type = args_.type, .one = args_.k == 1});
    const std::size_t element = size_of(args_.type);
    const auto rank = static_cast<std::uint32_t>(channel().rank());
    std::size_t done = 0;
    do {
      const std::size_t rows = std::min<std::size_t>(args_.rows - done, step_rows_);
      const auto at = [&](const void* data, std::size_t row_bytes) {
        return data != nullptr ? static_cast<const std::byte*>(data) + done * row_bytes : nullptr;
      };
      const detail::TopKWork work{.input = at(input_.data, input_.stride),
                                  .values = const_cast<std::byte*>(at(args_.values, args_.k * element)),
                                  .indices = args_.indices != nullptr ? args_.indices + done * args_.k : nullptr,
                                  .input_stride = input_.stride,
                                  .rows = static_cast<std::uint32_t>(rows),
                                  .k = static_cast<std::uint32_t>(args_.k),
                                  .first_column = static_cast<std::uint32_t>(shares_.first(rank)),
                                  .own_columns = static_cast<std::uint32_t>(shares_.count(rank)),
                                  .parts = parts_,
                                  .part_columns = detail::columns_of_part(args_.shard_columns, parts_)};
      run({.call = {}, .bound = kernel.with(work), .blocks = blocks(rows), .threads = threads(work.part_columns)});
      done += rows;
    } while (done < args_.rows);
  }

 private:
  // A block for each part of a row, and one for control.
  int blocks(std::size_t rows) const {
    if (args_.launch.blocks != 0) return args_.launch.blocks;
    const std::size_t most =
        static_cast<std::size_t>(std::max(channel().communicator().max_blocks(args_.launch) - 1, 1));
    return detail::whole_pairs(static_cast<int>(std::clamp<std::size_t>(rows * parts_, 1, most)) + 1, args_.launch);
  }
  // A thread has a few packs, or its largest number is no bound for anything.
  int threads(std::size_t part_columns) const {
    constexpr std::size_t kLeastPacks = 4;
    if (args_.launch.threads != 0) return args_.launch.threads;
    const std::size_t packs = part_columns * size_of(args_.type) / sizeof(detail::Pack);
    std::size_t threads = 64;
    while (threads < detail::kTopKThreads && 2 * threads * kLeastPacks <= packs) threads *= 2;
    return static_cast<int>(threads);
  }

  const TopKColumnsArgs& args_;
  detail::ColumnShares shares_{};
  std::uint32_t parts_ = 1;
  std::uint64_t step_rows_ = 0;
  Extent input_{};
};

}  // namespace

void top_k_columns(const Group& caller, const TopKColumnsArgs& args) {
  TopK call(caller, args);
  detail::make_call(call);
}

}  // namespace weft
