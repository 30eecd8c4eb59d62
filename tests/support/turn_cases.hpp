// Crossings with a norm, columns and searches for the largest that take turns (support/turns.hpp), each rank with
// capacities of its own: test bodies for CPU ranks and GPU ranks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "support/columns.hpp"
#include "support/normed_crossings.hpp"
#include "support/top_k.hpp"
#include "support/turns.hpp"

namespace weft::test {

// Shards of up to three rows of 1 KB. One hop takes few of them. Slots take any capacity of the first rank and those of
// no other one, or else two rows: then longer shards go in chunks.
struct NormedTurns {
  static constexpr std::size_t hidden = 512, row_bytes = hidden * 2, most = 3;
  int ranks, group_ranks;
  bool one_rank_fits;

  Config config(Config of) const {
    const auto n = static_cast<std::size_t>(ranks);
    of.one_shot_bytes = 4 * row_bytes;
    of.two_shot_bytes = n * (one_rank_fits ? n * most : 2) * row_bytes;
    return of;
  }
  template <class Side, class Made>
  void take(const Side& side, int rank, Made made) const {
    const auto call = [&, this](std::uint32_t kind, std::uint32_t seed, std::vector<std::int32_t> counts,
                                std::size_t spare) {
      const bool gathers = kind == 0, casts = gathers == one_rank_fits;
      return prepare(NormedCrossing{.gathers = gathers,
                                    .counts = std::move(counts),
                                    .group_ranks = group_ranks,
                                    .padding = one_rank_fits ? Padding::fixed : Padding::none,
                                    .slot_rows = one_rank_fits ? most : 0,
                                    .spare_rows = spare,
                                    .norm = {.hidden = hidden,
                                             .output = !casts,
                                             .fp8 = casts,
                                             .scaling = Fp8Scaling::per_128_columns,
                                             .seed = seed,
                                             .launch = side.launch(seed)}},
                     ranks, rank);
    };
    const auto all = static_cast<std::size_t>(ranks);
    take_turns(
        side, 40, made,
        [&](std::uint32_t kind) {
          const std::size_t spare = rank == 0 ? 0 : 1 + 4 * static_cast<std::size_t>(rank);
          return call(kind, kind, std::vector<std::int32_t>(all, std::int32_t{most}), spare);
        },
        [&](std::uint32_t kind, std::uint32_t turn) {
          std::mt19937 random(turn);
          std::vector<std::int32_t> counts(all);
          for (std::int32_t& count : counts) count = static_cast<std::int32_t>(random() % (turn % 3 + 2));
          return call(kind, turn, std::move(counts), 0);
        });
  }
};

// Logits for all ranks, with new numbers, and for groups, with new counts in fixed slots.
template <class Side, class Made>
void take_turns_with_columns(const Side& side, int ranks, int rank, int group_ranks, Made made) {
  constexpr std::size_t slot = 40;
  const auto groups = static_cast<std::size_t>(ranks / group_ranks);
  const std::size_t spare = 3 * static_cast<std::size_t>(rank);
  const auto call = [&](std::uint32_t kind, std::uint32_t seed, std::vector<std::int32_t> counts) {
    if (kind == 0)
      return prepare(ColumnCase{.rows = 9, .shard = 120, .output_f32 = true, .soft_cap = 30, .seed = seed}, ranks,
                     rank);
    return prepare(ColumnCase{.rows = groups * slot + spare,
                              .shard = 120,
                              .counts = std::move(counts),
                              .group_ranks = static_cast<std::size_t>(group_ranks),
                              .padding = Padding::fixed,
                              .slot_rows = slot,
                              .room = slot + spare,
                              .seed = seed},
                   ranks, rank);
  };
  take_turns(
      side, 40, made,
      [&](std::uint32_t kind) { return call(kind, 0, std::vector<std::int32_t>(groups, std::int32_t{slot})); },
      [&](std::uint32_t kind, std::uint32_t turn) {
        std::mt19937 random(turn);
        std::vector<std::int32_t> counts(groups);
        for (std::int32_t& count : counts) count = static_cast<std::int32_t>(random() % 3 == 0 ? 0 : random() % slot);
        return call(kind, 1 + turn, std::move(counts));
      });
}

// The largest of one row, and of many.
template <class Side, class Made>
void take_turns_with_top_k(const Side& side, int ranks, int rank, Made made) {
  const auto call = [&](std::uint32_t kind, std::uint32_t seed) {
    constexpr Numbers numbers[] = {Numbers::ties, Numbers::any, Numbers::falling, Numbers::special, Numbers::crowded};
    TopKCase c{.rows = 1, .shard = 300, .k = 1, .numbers = numbers[seed % 5], .seed = seed};
    if (kind == 1) c.rows = 17, c.k = 12;
    return prepare(c, ranks, rank);
  };
  take_turns(
      side, 60, made, [&](std::uint32_t kind) { return call(kind, 0); },
      [&](std::uint32_t kind, std::uint32_t turn) { return call(kind, 1 + turn); });
}

}  // namespace weft::test
