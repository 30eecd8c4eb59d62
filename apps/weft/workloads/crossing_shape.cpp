#include "workloads/crossing_shape.hpp"

#include <algorithm>
#include <numeric>
#include <span>

namespace weft::cli {

std::size_t CrossingForm::tokens(const Point& point, int group) const {
  return point.load == Load::busy && group > 0 ? 1 : static_cast<std::size_t>(point.rows);
}

bool CrossingShape::is_even() const {
  return all.own_rows() == all.most_rows() * ranks();
}

std::size_t CrossingShape::group_rows(std::size_t rank) const {
  return rows_between(first_of(rank), first_of(rank) + group_ranks);
}

std::size_t CrossingShape::group_slots(std::size_t rank) const {
  const std::size_t first = first_of(rank);
  return all.slots[first + group_ranks - 1].end - all.slots[first].begin;
}

GatherShape CrossingShape::group(std::size_t rank) const {
  const std::span members = std::span(all.rows).subspan(first_of(rank), group_ranks);
  GatherShape shape{.operation = all.operation, .type = all.type, .widths = all.widths};
  for (const std::size_t rows : members) {
    const std::size_t begin = shape.own_rows();
    shape.slots.push_back({begin, begin + rows});
    shape.rows.push_back(rows);
  }
  return shape;
}

std::size_t CrossingShape::rows_between(std::size_t from, std::size_t rank) const {
  const std::span some = std::span(all.rows).subspan(from, rank - from);
  return std::accumulate(some.begin(), some.end(), std::size_t{0});
}

std::size_t CrossingShape::input_rows() const {
  if (!gathers()) return all.padded_rows();
  std::size_t most = 0;
  for (std::size_t first = 0; first < ranks(); first += group_ranks) most = std::max(most, group_rows(first));
  return most;
}

std::size_t CrossingShape::output_rows() const {
  if (gathers()) return all.padded_rows();
  std::size_t most = 0;
  for (std::size_t first = 0; first < ranks(); first += group_ranks) most = std::max(most, group_slots(first));
  return most;
}

CrossingShape crossing_shape(const CrossingForm& form, const Point& point) {
  Point over_all = point;
  over_all.operation =
      point.operation == Operation::gather_sums ? Operation::all_gather_v : Operation::reduce_scatter_v;
  const bool equal = is_peer(point.contender) && point.contender != Contender::nccl_grouped;
  over_all.contender = equal ? Contender::padded : Contender::automatic;
  const GatherModel model{.layout = form.layout,
                          .hidden = form.hidden,
                          .padding = is_peer(point.contender) ? Padding::none : point.padding};
  return {.all = gather_shape(model, over_all), .group_ranks = static_cast<std::size_t>(form.layout.attn_tp())};
}

std::size_t crossing_bytes(const CrossingForm& form, const Point& point) {
  std::size_t rows = 0;
  for (const Operation operation : {Operation::gather_sums, Operation::scatter_sums}) {
    for (const Contender contender : {Contender::automatic, Contender::nccl}) {
      Point one = point;
      one.operation = operation;
      one.contender = contender;
      const CrossingShape shape = crossing_shape(form, one);
      rows = std::max({rows, shape.input_rows(), shape.output_rows()});
    }
  }
  return rows * static_cast<std::size_t>(form.hidden) * size_of(point.type);
}

}  // namespace weft::cli
