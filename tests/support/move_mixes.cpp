#include "support/move_mixes.hpp"

#include <random>
#include <utility>

namespace weft::test {

Move with_slots(Move move, int ranks) {
  if (move.padding != Padding::per_rank) return move;
  Move dense = move;
  dense.padding = Padding::none;
  move.slots.clear();
  std::mt19937 random(move.seed);
  for (const Place& place : places_of(dense, ranks))
    move.slots.push_back(static_cast<std::int32_t>(place.rows + random() % 7));
  return move;
}

std::vector<Move> random_moves(int count, int ranks, std::uint32_t seed) {
  constexpr Kind kinds[] = {Kind::all_gather,   Kind::all_to_all,       Kind::broadcast,   Kind::reduce_scatter,
                            Kind::all_gather_v, Kind::reduce_scatter_v, Kind::gather_sums, Kind::scatter_sums,
                            Kind::reduce,       Kind::gather,           Kind::scatter};
  constexpr DataType crossing_types[] = {DataType::bf16, DataType::f16, DataType::f32, DataType::i32};
  std::mt19937 random(seed);
  const auto pick = [&](auto n) { return random() % static_cast<std::uint32_t>(n); };
  std::vector<Move> moves;
  for (int i = 0; i < count; ++i) {
    Move move{.kind = kinds[pick(std::size(kinds))],
              .rows = pick(4),
              .widths = {pick(3) == 0 ? 700 : pick(60)},
              .type = kTypes[pick(std::size(kTypes))],
              .op = kOps[pick(std::size(kOps))],
              .fill = Fill::special,
              .root = static_cast<int>(pick(ranks)),
              .seed = seed + static_cast<std::uint32_t>(i)};
    move.in_place = move.kind != Kind::all_to_all && pick(4) == 0;
    if (pick(3) == 0) move.input_gap = pick(9);
    if (pick(3) == 0) move.output_gap = pick(9);
    for (int rank = 0; rank < ranks; ++rank) move.counts.push_back(static_cast<std::int32_t>(pick(3) * pick(5)));
    move.padding = static_cast<Padding>(pick(5));
    move.slot_rows = move.padding == Padding::aligned ? 4 : 9;
    if (move.kind == Kind::all_gather_v && pick(2) == 0) move.widths.push_back(pick(20));
    if (crosses(move.kind)) {
      move.type = crossing_types[pick(std::size(crossing_types))];
      move.op = ReduceOp::sum;
      move.in_place = false;
      do {
        move.group_ranks = 1 + static_cast<int>(pick(ranks));
      } while (ranks % move.group_ranks != 0);
    }
    moves.push_back(with_slots(std::move(move), ranks));
  }
  return moves;
}

std::vector<Move> moves_around_packs(int ranks, std::size_t longest, Fill copied) {
  std::vector<Move> moves;
  for (const Kind kind : kEqual) {
    for (const DataType type : kTypes) {
      // Copies only know the size of an element.
      if (!reduces(kind) && type != DataType::bf16 && type != DataType::f32) continue;
      const std::size_t pack = 16 / size_of(type), chunk = 1024 * pack;
      for (const std::size_t width :
           {std::size_t{0}, std::size_t{1}, pack - 1, pack, pack + 1, 3 * pack, 7 * pack, 8 * pack, 8 * pack + 1,
            16 * pack, 16 * pack + 1, chunk, chunk + 1, 3 * chunk - 1, longest * chunk}) {
        const auto seed = static_cast<std::uint32_t>(moves.size());
        moves.push_back({.kind = kind,
                         .widths = {width},
                         .type = type,
                         .op = mostly_sum(seed),
                         .fill = reduces(kind) ? Fill::special : copied,
                         .in_place = seed % 3 == 0 && kind != Kind::all_to_all,
                         .root = static_cast<int>(seed) % ranks,
                         .seed = seed});
      }
    }
  }
  return moves;
}

std::vector<Move> reduces_to_each_root(int ranks) {
  constexpr std::size_t widths[] = {5003, 96, 1};
  std::vector<Move> moves;
  for (const DataType type : kTypes) {
    for (const ReduceOp op : kOps) {
      for (int root = 0; root < ranks; ++root) {
        const auto seed = static_cast<std::uint32_t>(moves.size());
        moves.push_back({.kind = Kind::reduce,
                         .widths = {widths[seed % std::size(widths)]},
                         .type = type,
                         .op = op,
                         .fill = op == ReduceOp::avg ? Fill::random : Fill::special,
                         .input_shift = seed / 3 % 4,
                         .in_place = seed % 2 == 0,
                         .root = root,
                         .seed = seed});
      }
    }
  }
  return moves;
}

std::vector<Move> rows_of_each_root(int ranks) {
  std::vector<Move> moves;
  for (const Kind kind : {Kind::gather, Kind::scatter}) {
    for (int root = 0; root < ranks; ++root) {
      for (const std::size_t bytes : {0u, 1u, 48u, 5003u, 60'000u}) {
        const auto seed = static_cast<std::uint32_t>(moves.size());
        moves.push_back({.kind = kind,
                         .widths = {bytes},
                         .unit = 1,
                         .fill = Fill::bits,
                         .input_shift = seed % 3 * 5,
                         .output_shift = seed / 2 % 3 * 7,
                         .in_place = seed % 2 == 0,
                         .root = root,
                         .seed = seed});
      }
    }
  }
  return moves;
}

std::vector<Move> equal_moves_of_any_shape(int ranks, const AnyShape& shape) {
  std::mt19937 random(static_cast<unsigned>(ranks));
  const auto pick = [&](auto n) { return random() % static_cast<std::uint32_t>(n); };
  std::vector<Move> moves;
  for (std::uint32_t i = 0; i < 300; ++i) {
    const Kind kind = kEqual[pick(std::size(kEqual))];
    moves.push_back({.kind = kind,
                     .rows = pick(9),
                     .widths = {pick(2) == 0 ? pick(shape.packs) * 8 : pick(shape.elements)},
                     .type = kTypes[pick(std::size(kTypes))],
                     .op = kOps[pick(std::size(kOps))],
                     .unit = !reduces(kind) && pick(3) == 0 ? 1u : 0u,  // bytes of fp8, say
                     .fill = static_cast<Fill>(pick(4)),
                     .input_gap = pick(3) == 0 ? 0 : pick(9),
                     .output_gap = pick(3) == 0 ? 0 : pick(2) * 8 + pick(3),
                     .input_shift = pick(2) * pick(8),
                     .output_shift = pick(2) * pick(8),
                     .in_place = kind != Kind::all_to_all && pick(3) == 0,
                     .root = static_cast<int>(pick(ranks)),
                     .seed = i});
    if (shape.most_blocks != 0)
      moves.back().launch = {.blocks = 2 + static_cast<int>(pick(shape.most_blocks - 1)),
                             .threads = 32 * (1 + static_cast<int>(pick(8)))};
  }
  return moves;
}

std::vector<Move> ragged_moves_of_any_shape(int count, int ranks, const AnyShape& shape) {
  std::mt19937 random(static_cast<unsigned>(ranks));
  const auto pick = [&](auto n) { return random() % static_cast<std::uint32_t>(n); };
  std::vector<Move> moves;
  for (int i = 0; i < count; ++i) {
    std::vector<std::int32_t> counts;
    const std::uint32_t most = pick(3) == 0 ? 2 : pick(4) == 0 ? 40 : 12;
    for (int rank = 0; rank < ranks; ++rank) counts.push_back(static_cast<std::int32_t>(pick(3) == 0 ? 0 : pick(most)));
    const Kind kind = pick(2) == 0 ? Kind::all_gather_v : Kind::reduce_scatter_v;
    const bool split = pick(4) == 0;
    const auto padding = static_cast<Padding>(pick(5));
    if (split) counts.resize(1);
    std::vector<std::size_t> widths{pick(2) == 0 ? 8 * pick(shape.packs) : pick(shape.elements)};
    while (kind == Kind::all_gather_v && widths.size() < 8 && pick(2) == 0) widths.push_back(pick(20));
    moves.push_back(with_slots({.kind = kind,
                                .widths = widths,
                                .type = kTypes[pick(std::size(kTypes))],
                                .op = kOps[pick(std::size(kOps))],
                                .unit = kind == Kind::all_gather_v && pick(3) == 0 ? 1u : 0u,
                                .fill = pick(2) == 0 ? Fill::special : static_cast<Fill>(pick(4)),
                                .input_gap = pick(3) == 0 ? pick(9) : 0,
                                .output_gap = pick(3) == 0 ? pick(2) * 8 + pick(3) : 0,
                                .input_shift = pick(2) * pick(8),
                                .output_shift = pick(2) * pick(8),
                                .in_place = pick(4) == 0,
                                .counts = counts,
                                .sharding = split ? static_cast<Sharding>(1 + pick(2)) : Sharding::none,
                                .padding = padding,
                                .slot_rows = padding == Padding::aligned ? 4u : 40u,
                                .spare_rows = pick(5),
                                .seed = static_cast<std::uint32_t>(i)},
                               ranks));
  }
  return moves;
}

}  // namespace weft::test
