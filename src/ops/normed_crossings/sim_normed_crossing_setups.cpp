// Set-ups of crossings with residual and norm.
#include <fmt/format.h>

#include <utility>

#include "sim/setup.hpp"

namespace weft::sim {
namespace {

using detail::RowScaling;

constexpr NormForm kUncast{.scaling = RowScaling::none};
constexpr NormForm kCastAlone{.scaling = RowScaling::per_token, .floor = 2, .output = false};
constexpr NormForm kCastToo{.scaling = RowScaling::per_group, .power_of_two = true, .apart = true};
constexpr NormForm kCastWithF32{.scaling = RowScaling::per_group, .gamma_plus_one = true, .gamma_f32 = true};

struct NormedWay {
  Moving moving = Moving::gather_sums_norm;
  std::vector<std::int32_t> counts = {};
  bool flows = false;
  unsigned group_ranks = 2;
  Padding padding = Padding::max;
  std::uint64_t packs = 1;
  std::vector<Grid> grids = {Grid{}};
  NormForm form = kUncast;
  bool one_hop = false;
  bool in_place = false;
};
CallSetup normed_call(const NormedWay& way) {
  return {.count = way.packs * 8,
          .grids = way.grids,
          .in_place = way.in_place,
          .moving = way.moving,
          .flows = way.flows,
          .norm = way.form,
          .counts = way.counts,
          .padding = way.padding,
          .group_ranks = way.group_ranks,
          .one_hop = way.one_hop};
}
// There and back, and there again if the call goes in one hop: its slots are then used a second time. Calls that follow
// each other have the rows of other ranks.
std::vector<CallSetup> both_ways(NormedWay way) {
  std::vector<Moving> ways{Moving::gather_sums_norm, Moving::scatter_sums_norm};
  if (way.one_hop) ways.push_back(Moving::gather_sums_norm);
  std::vector<CallSetup> calls;
  for (const Moving moving : ways) {
    way.moving = moving;
    calls.push_back(normed_call(way));
    std::swap(way.counts.front(), way.counts.back());
  }
  return calls;
}

}  // namespace

std::vector<Setup> small_normed_crossing_setups() {
  const std::vector<Grid> apart{{.blocks = 5, .threads = 1}}, threads{{.blocks = 2, .threads = 2}};
  return {
      {.name = "normed-crossings-one-hop",
       .calls = both_ways({.counts = {1, 1}, .padding = Padding::fixed, .one_hop = true}),
       .bound = 1},
      {.name = "normed-crossings-one-hop-torn8",
       .atomic_bytes = 8,
       .payload = Payload::special,
       .calls = both_ways({.counts = {1, 0}, .packs = 2, .grids = threads, .form = kCastAlone, .one_hop = true}),
       .bound = 1},
      // The new residual takes the place of the old one, which other blocks send.
      {.name = "normed-crossings-one-hop-in-place",
       .calls = both_ways(
           {.counts = {2, 1}, .packs = 2, .grids = {{.blocks = 3, .threads = 1}}, .one_hop = true, .in_place = true}),
       .bound = 1},
      {.name = "normed-crossings-one-hop-in-place-threads",
       .calls = both_ways(
           {.counts = {2, 1}, .packs = 3, .grids = {{.blocks = 3, .threads = 2}}, .one_hop = true, .in_place = true}),
       .bound = 1},
      {.name = "normed-crossings-one-go-in-place",
       .calls = both_ways({.counts = {2, 1}, .packs = 2, .grids = {{.blocks = 3, .threads = 1}}, .in_place = true}),
       .bound = 1},
      {.name = "normed-crossings-chunks-in-place",
       .calls = both_ways({.counts = {2, 0}, .flows = true, .packs = 3, .grids = apart, .in_place = true}),
       .bound = 1,
       .pipeline_slots = 2,
       .pipeline_packs = 2},
      {.name = "normed-crossings-one-go", .calls = both_ways({.counts = {1, 1}}), .bound = 1},
      // A row's threads exchange values, and send packs that others of them have made.
      {.name = "normed-crossings-one-go-threads",
       .payload = Payload::rounding,
       .calls = {normed_call({.counts = {1, 0}, .packs = 2, .grids = threads, .form = kCastAlone})},
       .bound = 1},
      {.name = "normed-crossings-one-go-cpu",
       .atomic_bytes = 8,
       .one_thread = true,
       .payload = Payload::special,
       .calls = both_ways({.counts = {1, 0}, .padding = Padding::fixed, .packs = 2, .form = kCastAlone}),
       .bound = 1},
      // Groups of one rank: nothing is summed, or nothing is shared.
      {.name = "normed-crossings-alone",
       .calls = both_ways({.counts = {1, 1}, .group_ranks = 1, .form = kCastToo}),
       .bound = 1},
      {.name = "normed-crossings-f32",
       .calls = both_ways({.counts = {1, 1}, .packs = 2, .form = kCastWithF32}),
       .bound = 1},
      // Rows of three packs in slots of two: each has two chunks, and another block makes the next row.
      {.name = "normed-crossings-chunks-apart",
       .calls = {normed_call({.counts = {2, 0}, .flows = true, .packs = 3, .grids = apart})},
       .bound = 1,
       .pipeline_slots = 2,
       .pipeline_packs = 2},
      // Chunks that share no slot wait for no credit.
      {.name = "normed-crossings-chunks-across",
       .calls = {normed_call({.counts = {2, 0}, .flows = true, .packs = 3, .grids = apart})},
       .bound = 1,
       .pipeline_packs = 2},
      // Two blocks have all roles, and serve a row by turns.
      {.name = "normed-crossings-chunks-by-turns",
       .calls = {normed_call({.counts = {2, 0}, .flows = true, .packs = 3, .grids = {{.blocks = 3, .threads = 1}}})},
       .bound = 1,
       .pipeline_packs = 2},
      // A chunk has two rows, and the last one fewer.
      {.name = "normed-crossings-chunks-of-rows",
       .calls = {normed_call({.counts = {3, 0}, .flows = true, .packs = 2, .grids = {{.blocks = 3, .threads = 1}}})},
       .bound = 1,
       .pipeline_packs = 5},
      // Whole rows, a block in each role, and one slot for either hop.
      {.name = "normed-crossings-chunks-in-roles",
       .calls = {normed_call({.counts = {3, 0}, .flows = true, .packs = 2, .grids = {{.blocks = 4, .threads = 1}}})},
       .bound = 1,
       .pipeline_slots = 2,
       .pipeline_packs = 2},
      {.name = "normed-crossings-chunks-cast-threads",
       .calls = {normed_call({.moving = Moving::scatter_sums_norm,
                              .counts = {2, 0},
                              .flows = true,
                              .packs = 2,
                              .grids = {{.blocks = 2, .threads = 2}},
                              .form = kCastAlone})},
       .bound = 1,
       .pipeline_slots = 2,
       .pipeline_packs = 2},
      {.name = "normed-crossings-chunks-alone",
       .calls = {normed_call({.counts = {2, 0}, .flows = true, .group_ranks = 1, .packs = 2, .grids = apart})},
       .bound = 1,
       .pipeline_slots = 2,
       .pipeline_packs = 2},
      {.name = "normed-crossings-chunks-threads",
       .calls = {normed_call({.counts = {2, 0}, .flows = true, .packs = 3, .grids = {{.blocks = 3, .threads = 2}}})},
       .bound = 1,
       .pipeline_slots = 2,
       .pipeline_packs = 2},
      {.name = "normed-crossings-chunks-cpu",
       .atomic_bytes = 8,
       .one_thread = true,
       .calls = both_ways({.counts = {1, 2}, .flows = true, .packs = 2, .form = kCastAlone}),
       .bound = 1},
  };
}

// Beside all-reduces and crossings, whose areas they share; groups of every size, and rows across chunks.
std::vector<Setup> large_normed_crossing_setups() {
  std::vector<Setup> setups;
  for (const unsigned ranks : {2u, 3u, 4u}) {
    std::vector<CallSetup> calls;
    for (const unsigned way : {0u, 1u, 2u}) {
      const bool flows = way == 2, one_hop = way == 0;
      for (unsigned group_ranks = one_hop ? 2 : 1; group_ranks <= ranks; ++group_ranks) {
        if (ranks % group_ranks != 0) continue;
        std::vector<std::int32_t> counts(ranks, 1);
        counts.front() = 2, counts.back() = 0;
        for (const CallSetup& call : both_ways({.counts = counts,
                                     .flows = flows,
                                     .group_ranks = group_ranks,
                                     .padding = flows ? Padding::aligned : Padding::fixed,
                                     .packs = flows ? 3u : 2u,
                                     .form = group_ranks == 1      ? kCastToo
                                                : group_ranks == 2 ? kCastAlone
                                                                   : kUncast,
                                     .one_hop = one_hop}))
          calls.push_back(call);
      }
      calls.push_back({.count = 9});
    }
    setups.push_back({.name = fmt::format("normed-crossings-mixed-ranks{}", ranks),
                      .algorithm = Algorithm::two_shot,
                      .ranks = ranks,
                      .payload = ranks == 3 ? Payload::special : Payload::rounding,
                      .calls = std::move(calls),
                      .pipeline_packs = 2});
  }
  // One block does all; others have a block for each.
  setups.push_back({.name = "normed-crossings-grids-ranks4",
                    .ranks = 4,
                    .calls = both_ways({.counts = {3, 2, 0, 4},
                                        .flows = true,
                                        .padding = Padding::none,
                                        .packs = 3,
                                        .grids = {{2, 1}, {5, 1}, {3, 2}, {4, 1}}}),
                    .pipeline_slots = 2,
                    .pipeline_packs = 2});
  return setups;
}

}  // namespace weft::sim
