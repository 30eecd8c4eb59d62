#include "support/move_mixes.hpp"

#include <random>
#include <utility>

namespace weft::test {

Move with_slots(Move move, int ranks) {
  if (move.slot != SlotKind::given) return move;
  Move dense = move;
  dense.slot = SlotKind::dense;
  move.slots.clear();
  std::mt19937 random(move.seed);
  for (const Place& place : places_of(dense, ranks))
    move.slots.push_back(static_cast<std::int32_t>(place.rows + random() % 7));
  return move;
}

std::vector<Move> random_moves(int count, int ranks, std::uint32_t seed) {
  constexpr Kind kinds[] = {Kind::all_gather,     Kind::all_to_all,   Kind::broadcast,
                            Kind::reduce_scatter, Kind::all_gather_v, Kind::reduce_scatter_v};
  std::mt19937 random(seed);
  const auto pick = [&](auto n) { return random() % static_cast<std::uint32_t>(n); };
  std::vector<Move> moves;
  for (int i = 0; i < count; ++i) {
    Move move{.kind = kinds[pick(6)],
              .rows = pick(4),
              .widths = {pick(3) == 0 ? 700 : pick(60)},
              .type = kTypes[pick(4)],
              .fill = Fill::special,
              .root = static_cast<int>(pick(ranks)),
              .seed = seed + static_cast<std::uint32_t>(i)};
    move.in_place = move.kind != Kind::all_to_all && pick(4) == 0;
    if (pick(3) == 0) move.input_gap = pick(9);
    if (pick(3) == 0) move.output_gap = pick(9);
    for (int rank = 0; rank < ranks; ++rank) move.counts.push_back(static_cast<std::int32_t>(pick(3) * pick(5)));
    move.slot = static_cast<SlotKind>(pick(5));
    move.slot_rows = move.slot == SlotKind::aligned ? 4 : 9;
    if (move.kind == Kind::all_gather_v && pick(2) == 0) move.widths.push_back(pick(20));
    moves.push_back(with_slots(std::move(move), ranks));
  }
  return moves;
}

}  // namespace weft::test
