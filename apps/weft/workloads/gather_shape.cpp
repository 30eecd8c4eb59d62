#include "workloads/gather_shape.hpp"

#include <algorithm>
#include <numeric>

namespace weft::cli {
namespace {

constexpr std::size_t kScaleColumns = 128;    // columns per scale of 4 bytes
constexpr std::size_t kTensorElements = 128;  // a tensor begins at a multiple, as with an allocator

// The operation on all ranks that has the same form as one in attention groups.
Operation ungrouped(Operation operation) {
  if (operation == Operation::attn_reduce_scatter) return Operation::reduce_scatter_v;
  return operation == Operation::attn_all_gather ? Operation::all_gather_v : operation;
}

void place(const GatherModel& model, GatherShape& shape) {
  if (shape.operation == Operation::all_gather_v || shape.operation == Operation::reduce_scatter_v ||
      shape.operation == Operation::four_tensors)
    shape.padding = model.padding;
  if (shape.padding == Padding::aligned) shape.slot_rows = kAlignedRows;
  if (shape.padding == Padding::fixed) shape.slot_rows = shape.most_rows();
  const std::vector<std::int32_t> rows(shape.rows.begin(), shape.rows.end());
  if (shape.padding != Padding::per_rank) {
    shape.slots = slots_of(rows, shape.padding, shape.slot_rows);
    return;
  }
  std::vector<std::int32_t> lengths = rows;
  for (std::size_t rank = 0; rank < lengths.size(); ++rank)
    lengths[rank] += static_cast<std::int32_t>(rank % kAlignedRows);
  shape.slots = slots_of(rows, lengths);
}

bool is_equal_form(const Point& point) {
  return !is_ragged(point.operation) || point.contender == Contender::padded;
}

// Tokens of attention group d: all alike, or one busy group and a token in each other group.
std::size_t tokens_of(const Point& point, int group) {
  if (point.operation == Operation::barrier) return 1;  // NCCL's barrier sums one word
  return point.load == Load::busy && group > 0 ? 1 : static_cast<std::size_t>(point.rows);
}

std::vector<std::size_t> widths_of(const GatherModel& model, const Point& point) {
  const auto hidden = static_cast<std::size_t>(model.hidden);
  if (point.operation == Operation::barrier) return {1};
  if (point.operation != Operation::four_tensors) return {hidden};
  const std::size_t word = 4 / size_of(point.type);  // scales, ids and weights have 4 bytes
  const std::size_t choices = static_cast<std::size_t>(model.top_k) * word;
  const std::size_t scales = (hidden + kScaleColumns - 1) / kScaleColumns * word;
  if (point.contender == Contender::one_tensor) return {hidden + scales + 2 * choices};
  return {hidden, scales, choices, choices};
}

}  // namespace

bool GatherShape::scatters() const {
  return operation == Operation::reduce_scatter || operation == Operation::reduce_scatter_v;
}

std::size_t GatherShape::own_rows() const {
  return std::accumulate(rows.begin(), rows.end(), std::size_t{0});
}

std::size_t GatherShape::padded_rows() const {
  return slots.empty() ? 0 : slots.back().end;
}

std::size_t GatherShape::most_slot() const {
  std::size_t most = 0;
  for (const RowRange& one : slots) most = std::max(most, one.size());
  return most;
}

std::size_t GatherShape::most_rows() const {
  return *std::max_element(rows.begin(), rows.end());
}

std::size_t GatherShape::row_elements() const {
  std::size_t sum = 0;
  for (const std::size_t width : widths) sum += width;
  return sum;
}

std::size_t GatherShape::at(std::size_t tensor, std::size_t room) const {
  std::size_t sum = 0;
  for (std::size_t t = 0; t < tensor; ++t)
    sum += (room * widths[t] + kTensorElements - 1) / kTensorElements * kTensorElements;
  return sum;
}

std::size_t GatherShape::input_at(std::size_t tensor) const {
  const bool from_one_rank_to_all = operation == Operation::all_to_all || operation == Operation::broadcast;
  return at(tensor, scatters() || from_one_rank_to_all ? all_rows() : most_rows());
}

std::size_t GatherShape::output_at(std::size_t tensor) const {
  return at(tensor, scatters() ? most_slot() : all_rows());
}

GatherShape gather_shape(const GatherModel& model, const Point& point, int group) {
  const ParallelLayout& layout = model.layout;
  GatherShape shape{.operation = ungrouped(point.operation), .type = point.type, .widths = widths_of(model, point)};
  const bool grouped = is_in_groups(point.operation);
  const int first = grouped ? group * layout.attn_tp() : 0, ranks = grouped ? layout.attn_tp() : layout.tp;
  for (int rank = first; rank < first + ranks; ++rank)
    shape.rows.push_back(shard_of(tokens_of(point, layout.attn_dp_rank(rank)), layout.attn_tp(),
                                  layout.attn_tp_rank(rank), Sharding::balanced)
                             .size());
  if (is_equal_form(point)) {
    if (is_ragged(shape.operation))
      shape.operation = shape.scatters() ? Operation::reduce_scatter : Operation::all_gather;
    shape.rows.assign(shape.ranks(), shape.most_rows());
  }
  if (point.contender == Contender::push) shape.operation = Operation::all_gather;
  place(model, shape);
  return shape;
}

ParallelLayout scaled(const ParallelLayout& layout, int ranks) {
  if (layout.tp <= ranks) return layout;
  int group = std::min(layout.attn_tp(), ranks);
  while (ranks % group != 0) --group;
  return {.tp = ranks, .dp = ranks / group};
}

}  // namespace weft::cli
