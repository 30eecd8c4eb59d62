#include "support/crossing_cases.hpp"

#include <utility>

#include "support/move_mixes.hpp"
#include "support/ragged_cases.hpp"

namespace weft::test {
namespace {

constexpr Kind kCrossings[] = {Kind::gather_sums, Kind::scatter_sums, Kind::all_gather_v};

}  // namespace

std::vector<std::vector<std::int32_t>> shapes_of(int ranks, int group_ranks) {
  const auto n = static_cast<std::size_t>(ranks), each = static_cast<std::size_t>(group_ranks);
  std::vector<std::vector<std::int32_t>> shapes{std::vector<std::int32_t>(n, 0), std::vector<std::int32_t>(n, 6)};
  for (std::size_t group = 0; group < n; group += each) {
    std::vector<std::int32_t>& only = shapes.emplace_back(n, 0);
    for (std::size_t rank = group; rank < group + each; ++rank)
      only[rank] = static_cast<std::int32_t>(group + each - rank);
    shapes.emplace_back(n, 1)[group] = 0;
  }
  std::vector<std::int32_t>& rising = shapes.emplace_back(n);
  for (std::size_t rank = 0; rank < n; ++rank) rising[rank] = static_cast<std::int32_t>(rank * 3 % 7);
  return shapes;
}

std::vector<Move> crossings_of_every_shape(int ranks) {
  constexpr DataType types[] = {DataType::bf16, DataType::f32, DataType::f16, DataType::i32};
  constexpr std::size_t widths[] = {8, 5, 256, 33};
  std::vector<Move> moves;
  for (const Kind kind : kCrossings) {
    for (int group_ranks = 1; group_ranks <= ranks; ++group_ranks) {
      if (ranks % group_ranks != 0) continue;
      for (const auto& counts : shapes_of(ranks, group_ranks)) {
        for (const SlotChoice& padding : kSlots) {
          const std::size_t number = moves.size();
          Move move{.kind = kind,
                    .widths = {widths[number % 4]},
                    .type = types[number / 3 % 4],
                    .fill = Fill::special,
                    .counts = counts,
                    .padding = padding.kind,
                    .slot_rows = padding.rows,
                    .spare_rows = number % 3,
                    .counts_at = number % 5 == 0 ? CountsAt::host_of_odd_ranks : CountsAt::device,
                    .group_ranks = group_ranks,
                    .seed = static_cast<std::uint32_t>(number)};
          if (number % 4 == 3) move.input_gap = 3, move.output_gap = 5, move.input_shift = 1, move.output_shift = 2;
          if (number % 7 == 2) move.input_gap = 8, move.output_gap = 16;
          if (kind == Kind::all_gather_v) move.fill = Fill::bits, move.widths.resize(1 + number % 3, 16);
          moves.push_back(with_slots(std::move(move), ranks));
        }
      }
    }
  }
  return moves;
}

std::vector<Move> long_crossings(int ranks, std::int32_t rows) {
  std::vector<Move> moves;
  for (const Kind kind : kCrossings) {
    for (int group_ranks = 2; group_ranks <= ranks; ++group_ranks) {
      if (ranks % group_ranks != 0) continue;
      for (const std::size_t width : {std::size_t{7168}, std::size_t{7165}}) {
        std::vector<std::int32_t> counts(static_cast<std::size_t>(ranks), rows);
        counts[moves.size() % counts.size()] = 1;
        moves.push_back({.kind = kind,
                         .widths = {width},
                         .fill = Fill::special,
                         .counts = counts,
                         .padding = Padding::max,
                         .group_ranks = group_ranks,
                         .seed = static_cast<std::uint32_t>(moves.size())});
      }
    }
  }
  return moves;
}

}  // namespace weft::test
