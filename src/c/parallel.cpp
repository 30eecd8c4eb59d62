#include <algorithm>
#include <array>

#include "c/mirror.hpp"

namespace weft::c {

template <>
struct Mirror<weft_parallel_layout> {
  using Cpp = ParallelLayout;
  static constexpr const char* name = "weft_parallel_layout";
  static constexpr std::size_t least = sizeof(weft_parallel_layout);
  static void fields(auto& c, auto& cpp, auto copy) {
    copy(c.tp, cpp.tp);
    copy(c.dp, cpp.dp);
    copy(c.ep, cpp.ep);
    copy(c.moe_dense_tp, cpp.moe_dense_tp);
  }
};

namespace {

// By weft_parallel_group.
constexpr std::array kGroups = {&ParallelLayout::attn_tp_group, &ParallelLayout::attn_dp_group,
                                &ParallelLayout::moe_tp_group, &ParallelLayout::moe_ep_group,
                                &ParallelLayout::dense_tp_group};

ParallelLayout layout_at(const weft_parallel_layout* layout) {
  return cpp_of(whole(layout));
}

void give_ranges(const std::vector<RowRange>& made, weft_row_range* ranges) {
  const auto places = span_at("ranges", ranges, made.size());
  std::ranges::transform(made, places.begin(),
                         [](const RowRange& range) { return weft_row_range{.begin = range.begin, .end = range.end}; });
}

}  // namespace
}  // namespace weft::c

using namespace weft::c;

extern "C" {

weft_code weft_parallel_layout_init(weft_parallel_layout* layout, size_t size) {
  return init(layout, size);
}

weft_code weft_parallel_layout_check(const weft_parallel_layout* layout) {
  return guarded([&] { layout_at(layout).check(); });
}

weft_code weft_parallel_place_of(const weft_parallel_layout* layout, int rank, weft_parallel_place* place) {
  return guarded([&] {
    const weft::ParallelLayout of = layout_at(layout);
    give<weft_parallel_place>("place", place,
                              {.size = sizeof *place,
                               .attn_tp = of.attn_tp(),
                               .attn_dp_rank = of.attn_dp_rank(rank),
                               .attn_tp_rank = of.attn_tp_rank(rank),
                               .moe_tp = of.moe_tp(),
                               .moe_ep_rank = of.moe_ep_rank(rank),
                               .moe_tp_rank = of.moe_tp_rank(rank),
                               .dense_tp = of.dense_tp(),
                               .attn_tp_color = of.attn_tp_color(rank),
                               .attn_dp_color = of.attn_dp_color(rank),
                               .moe_tp_color = of.moe_tp_color(rank),
                               .moe_ep_color = of.moe_ep_color(rank),
                               .dense_tp_color = of.dense_tp_color(rank)});
  });
}

weft_code weft_parallel_group_of(const weft_parallel_layout* layout, weft_parallel_group kind, int rank, int* members,
                                 size_t capacity, size_t* count) {
  return guarded([&] {
    const auto number = static_cast<std::size_t>(kind);
    if (kind < 0 || number >= kGroups.size())
      throw weft::Error(weft::Errc::invalid_argument, fmt::format("kind: {} is no kind of group", kind));
    const std::vector<int> group = (layout_at(layout).*kGroups[number])(rank);
    const auto room = span_at("members", members, std::min(capacity, group.size()));
    at("count", count) = group.size();
    std::copy_n(group.begin(), room.size(), room.begin());
  });
}

weft_code weft_shard_of(size_t rows, int parts, int part, weft_sharding sharding, weft_row_range* range) {
  return guarded([&] {
    weft_row_range& place = at("range", range);
    const weft::RowRange shard = weft::shard_of(rows, parts, part, enumerator<weft::Sharding>(sharding));
    place = {.begin = shard.begin, .end = shard.end};
  });
}

weft_code weft_slot_rows_of(size_t rows, weft_padding kind, size_t slot_rows, size_t* result) {
  return guarded([&] { at("result", result) = weft::slot_rows_of(rows, enumerator<weft::Padding>(kind), slot_rows); });
}

weft_code weft_slots_of(const int32_t* rows, size_t ranks, weft_padding kind, size_t slot_rows,
                        weft_row_range* ranges) {
  return guarded([&] {
    give_ranges(weft::slots_of(span_at("rows", rows, ranks), enumerator<weft::Padding>(kind), slot_rows), ranges);
  });
}

weft_code weft_slots_of_each(const int32_t* rows, const int32_t* slot_rows, size_t ranks, weft_row_range* ranges) {
  return guarded([&] {
    give_ranges(weft::slots_of(span_at("rows", rows, ranks), span_at("slot_rows", slot_rows, ranks)), ranges);
  });
}

weft_code weft_shard_counts(const weft_parallel_layout* layout, const int32_t* group_rows, size_t groups,
                            weft_sharding sharding, size_t slot_rows, int32_t* counts) {
  return guarded([&] {
    const std::vector<std::int32_t> made = weft::shard_counts(
        layout_at(layout), span_at("group_rows", group_rows, groups), enumerator<weft::Sharding>(sharding), slot_rows);
    std::ranges::copy(made, span_at("counts", counts, made.size()).begin());
  });
}

weft_code weft_shard_counts_of_each(const weft_parallel_layout* layout, const int32_t* group_rows,
                                    const int32_t* slot_rows, size_t groups, weft_sharding sharding, int32_t* counts) {
  return guarded([&] {
    const std::vector<std::int32_t> made =
        weft::shard_counts(layout_at(layout), span_at("group_rows", group_rows, groups),
                           enumerator<weft::Sharding>(sharding), span_at("slot_rows", slot_rows, groups));
    std::ranges::copy(made, span_at("counts", counts, made.size()).begin());
  });
}

}  // extern "C"
