#include "support/ragged_cases.hpp"

#include <cstring>
#include <utility>

#include "support/move_mixes.hpp"

namespace weft::test {
namespace {

std::vector<std::vector<std::int32_t>> shapes_of_counts(int ranks) {
  const auto n = static_cast<std::size_t>(ranks);
  std::vector<std::vector<std::int32_t>> shapes{std::vector<std::int32_t>(n, 0), std::vector<std::int32_t>(n, 6)};
  for (std::size_t rank = 0; rank < n; ++rank) {
    shapes.emplace_back(n, 0)[rank] = 5;
    shapes.emplace_back(n, 1)[rank] = 40;
  }
  std::vector<std::int32_t> rising(n);
  for (std::size_t rank = 0; rank < n; ++rank) rising[rank] = static_cast<std::int32_t>(rank * 3 % 7);
  shapes.push_back(rising);
  return shapes;
}

Misfit given(const char* name, const char* reason, Kind kind, std::vector<std::int32_t> counts,
             std::vector<std::int32_t> slots, int detected_by = -1) {
  return {name, reason, kind, std::move(counts), Padding::per_rank, detected_by, std::move(slots)};
}

}  // namespace

std::vector<Move> moves_of_every_shape(int ranks) {
  std::vector<Move> moves;
  for (const Kind kind : kRagged) {
    for (const auto& counts : shapes_of_counts(ranks)) {
      for (const SlotChoice& padding : kSlots) {
        for (const std::size_t width : {std::size_t{8}, std::size_t{5}}) {
          moves.push_back(with_slots({.kind = kind,
                                      .widths = {width},
                                      .op = mostly_sum(moves.size()),
                                      .fill = Fill::special,
                                      .counts = counts,
                                      .padding = padding.kind,
                                      .slot_rows = padding.rows,
                                      .spare_rows = moves.size() % 3,
                                      .seed = static_cast<std::uint32_t>(moves.size())},
                                     ranks));
        }
      }
    }
  }
  return moves;
}

std::vector<Move> moves_of_shared_rows(int ranks) {
  std::vector<Move> moves;
  for (const Kind kind : kRagged) {
    for (const Sharding sharding : {Sharding::balanced, Sharding::ceil}) {
      for (const std::int32_t rows : {0, 1, ranks - 1, ranks, ranks + 1, 3 * ranks + 2, 41}) {
        for (const SlotChoice& padding : kSlots) {
          const auto seed = static_cast<std::uint32_t>(moves.size());
          moves.push_back(with_slots({.kind = kind,
                                      .widths = {16},
                                      .fill = Fill::special,
                                      .in_place = seed % 3 == 0,
                                      .counts = {rows},
                                      .sharding = sharding,
                                      .padding = padding.kind,
                                      .slot_rows = padding.rows,
                                      .seed = seed},
                                     ranks));
        }
      }
    }
  }
  return moves;
}

std::vector<Move> moves_with_counts_on_host(int ranks) {
  std::vector<Move> moves;
  const auto add = [&](const std::vector<Move>& from, std::size_t step) {
    for (std::size_t i = 0; i < from.size(); i += step) {
      moves.push_back(from[i]);
      moves.back().counts_at = moves.size() % 2 == 0 ? CountsAt::host : CountsAt::host_of_odd_ranks;
    }
  };
  add(moves_of_every_shape(ranks), 7);
  add(moves_of_shared_rows(ranks), 11);
  return moves;
}

std::vector<Move> moves_of_many_tensors(int ranks) {
  // DeepSeek-V3 in fp8: a token's hidden state, scales, ids and weights; then other widths.
  constexpr std::size_t all[] = {7168, 224, 32, 32, 1, 7, 17, 4097};
  std::vector<Move> moves;
  for (std::size_t tensors = 1; tensors <= kMaxGatheredTensors; ++tensors) {
    for (const bool apart : {false, true}) {
      const auto seed = static_cast<std::uint32_t>(moves.size());
      Move move{.kind = Kind::all_gather_v, .widths = {all, all + tensors}, .unit = 1, .spare_rows = 1, .seed = seed};
      if (apart) std::ranges::reverse(move.widths);
      if (apart) move.input_gap = 3, move.output_gap = 5, move.input_shift = 1, move.output_shift = 2;
      for (int rank = 0; rank < ranks; ++rank)
        move.counts.push_back(static_cast<std::int32_t>((static_cast<std::size_t>(rank) + tensors) % 4));
      const SlotChoice padding = kSlots[seed % std::size(kSlots)];
      move.padding = padding.kind, move.slot_rows = padding.rows;
      move.in_place = seed % 3 == 2;
      moves.push_back(with_slots(std::move(move), ranks));
    }
  }
  return moves;
}

std::vector<AlikeMoves> alike_moves(int ranks) {
  std::vector<AlikeMoves> pairs;
  for (const bool scatters : {false, true}) {
    for (const std::size_t width : {std::size_t{8}, std::size_t{7}, std::size_t{7168}}) {
      for (const std::size_t rows : {std::size_t{1}, std::size_t{5}}) {
        const Move equal{.kind = scatters ? Kind::reduce_scatter : Kind::all_gather,
                         .rows = rows,
                         .widths = {width},
                         .op = kOps[pairs.size() % std::size(kOps)],
                         .fill = scatters ? Fill::random : Fill::bits,
                         .seed = static_cast<std::uint32_t>(pairs.size())};
        Move ragged = equal;
        ragged.kind = scatters ? Kind::reduce_scatter_v : Kind::all_gather_v;
        ragged.counts.assign(static_cast<std::size_t>(ranks), static_cast<std::int32_t>(rows));
        pairs.push_back({equal, ragged});
      }
    }
  }
  return pairs;
}

std::vector<Misfit> misfits() {
  return {
      {"NegativeCount", "the count of rank 1 is -1, allowed is 0 or more", Kind::all_gather_v, {4, -1, 4}},
      {"OneRankHasTooMany",
       "the part of rank 1 has 5 rows, and its tensor 4",
       Kind::all_gather_v,
       {4, 5, 0},
       Padding::none,
       1},
      {"TogetherTooMany",
       "all slots together have 2147483655 rows, and the tensor that holds them 12",
       Kind::all_gather_v,
       {4, 4, 2147483647}},
      {"FixedSlotTooSmall",
       "the count of rank 2 is 5, and its slot has 4 rows",
       Kind::all_gather_v,
       {1, 1, 5},
       Padding::fixed},
      {"PadsTooMany",
       "all slots together have 15 rows, and the tensor that holds them 12",
       Kind::all_gather_v,
       {1, 5, 1},
       Padding::max},
      {"ShardTooLong",
       "the part of rank 2 has 5 rows, and its tensor 4",
       Kind::reduce_scatter_v,
       {2, 2, 5},
       Padding::none,
       2},
      {"ScatterTooMany",
       "all slots together have 2000000008 rows, and the tensor that holds them 12",
       Kind::reduce_scatter_v,
       {4, 4, 2000000000}},
      {"ScatterNegative", "the count of rank 0 is -2147483648, allowed", Kind::reduce_scatter_v, {-2147483648, 0, 0}},
      given("GivenSlotTooSmall", "the count of rank 1 is 3, and its slot has 2 rows", Kind::all_gather_v, {1, 3, 1},
            {4, 2, 4}),
      given("GivenSlotNegative", "the slot of rank 1 has -1 rows, allowed is 0 or more", Kind::all_gather_v, {1, 0, 1},
            {4, -1, 4}),
      given("GivenTooMany", "all slots together have 2147483655 rows, and the tensor that holds them 12",
            Kind::all_gather_v, {1, 1, 1}, {4, 4, 2147483647}),
      given("ScatterGivenSlotTooSmall", "the count of rank 0 is 3, and its slot has 2 rows", Kind::reduce_scatter_v,
            {3, 4, 4}, {2, 4, 4}),
      given("ScatterGivenTooLong", "the part of rank 1 has 5 rows, and its tensor 4", Kind::reduce_scatter_v, {1, 1, 1},
            {4, 5, 3}, 1)};
}

MisfitMove prepare(const Misfit& misfit, int rank, const Launch& launch) {
  const std::vector<std::int32_t> fours(kMisfitRanks, 4);
  MisfitMove move{.capacity = prepare({.kind = misfit.kind,
                                       .widths = {16},
                                       .counts = fours,
                                       .padding = misfit.padding,
                                       .slot_rows = 4,
                                       .slots = misfit.slots.empty() ? misfit.slots : fours,
                                       .launch = launch},
                                      kMisfitRanks, rank),
                  .untouched = {}};
  move.untouched = move.capacity;
  std::vector<std::int32_t> numbers = misfit.counts;
  numbers.insert(numbers.end(), misfit.slots.begin(), misfit.slots.end());
  Memory& counts = move.untouched.counts;
  std::memcpy(counts.before.data() + counts.begin, numbers.data(), numbers.size() * sizeof(std::int32_t));
  counts.after = counts.before;
  for (Memory& memory : move.untouched.memory) memory.after = memory.before;
  return move;
}

}  // namespace weft::test
