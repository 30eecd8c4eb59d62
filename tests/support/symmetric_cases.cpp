#include "support/symmetric_cases.hpp"

#include "support/move_mixes.hpp"
#include "support/sanitized.hpp"

namespace weft::test {

std::vector<Move> symmetric_moves(int ranks) {
  const auto n = static_cast<std::size_t>(ranks);
  std::vector<Move> moves;
  const auto add = [&](Move move) {
    move.fill = Fill::bits;
    move.seed = static_cast<std::uint32_t>(moves.size());
    move.root = static_cast<int>(moves.size()) % ranks;
    moves.push_back(with_slots(std::move(move), ranks));
  };
  const std::size_t longest = kSanitized ? 20'000 : 90'000;
  for (const Kind kind : kCopies) {
    for (const std::size_t width :
         {std::size_t{8}, std::size_t{520}, std::size_t{8192}, std::size_t{8200}, longest / 8 * 8}) {
      add({.kind = kind, .widths = {width}, .in_place = width == 8200 && kind != Kind::all_to_all});
      add({.kind = kind, .rows = 3, .widths = {width}, .output_gap = 8});
    }
    add({.kind = kind, .rows = 2, .widths = {5000}, .input_gap = 3, .input_shift = 1});  // bytes at any address
    add({.kind = kind, .widths = {9001}});                                               // no whole packs
    add({.kind = kind, .widths = {9000}, .output_shift = 4});
  }
  for (const Padding padding : {Padding::none, Padding::aligned, Padding::max, Padding::fixed, Padding::per_rank}) {
    for (const std::size_t busy : {std::size_t{0}, n - 1}) {
      for (const std::int32_t most : {2, 5, 40}) {
        Move move{.kind = Kind::all_gather_v,
                  .widths = {1024, 64, 8},
                  .in_place = most == 5,
                  .padding = padding,
                  .slot_rows = padding == Padding::aligned ? 4u : 41u,
                  .spare_rows = 1};
        move.counts.assign(n, most == 40 ? 1 : 2);
        move.counts[busy] = most;
        if (n > 2) move.counts[1] = 0;
        add(move);
      }
    }
  }
  add({.kind = Kind::all_gather_v, .widths = {512}, .counts = std::vector<std::int32_t>(n, 0)});
  add({.kind = Kind::all_gather_v,
       .widths = {2048},
       .counts = {static_cast<std::int32_t>(3 * n + 1)},
       .sharding = Sharding::balanced});
  return moves;
}

}  // namespace weft::test
