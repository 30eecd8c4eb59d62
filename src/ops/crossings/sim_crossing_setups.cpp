// Set-ups of crossings.
#include <fmt/format.h>

#include <utility>

#include "sim/setup.hpp"

namespace weft::sim {
namespace {

struct Way {
  Moving moving = Moving::gather_sums;
  std::vector<std::int32_t> counts = {};
  bool flows = false;
  unsigned group_ranks = 2;
  Padding padding = Padding::max;
  std::uint64_t count = 8;
  std::vector<Grid> grids = {Grid{}};
  bool one_hop = false;
};
CallSetup call_of(const Way& way) {
  return {.count = way.count,
          .grids = way.grids,
          .moving = way.moving,
          .flows = way.flows,
          .counts = way.counts,
          .padding = way.padding,
          .group_ranks = way.group_ranks,
          .one_hop = way.one_hop};
}
// A gather, a scatter and a gather; the rows of one rank make its peers' begin elsewhere.
std::vector<CallSetup> calls_of(Way way) {
  std::vector<CallSetup> calls;
  for (const Moving moving : {Moving::gather_sums, Moving::scatter_sums, Moving::gather_sums}) {
    way.moving = moving;
    calls.push_back(call_of(way));
    std::swap(way.counts.front(), way.counts.back());
  }
  return calls;
}

}  // namespace

std::vector<Setup> small_crossing_setups() {
  const std::vector<Grid> apart{{.blocks = 4, .threads = 1}};  // a data block in each role
  // Ranks that have the same rows: each sends its own part of them.
  const auto replicas = [](bool flows, bool symmetric) {
    return CallSetup{.count = 8,
                     .moving = Moving::all_gather_v,
                     .flows = flows,
                     .symmetric = symmetric,
                     .counts = {1, 2},
                     .second = 8,
                     .group_ranks = 2};
  };
  return {
      {.name = "all-gather-v-replicas",
       .calls = {replicas(false, false), replicas(true, false), replicas(true, true)},
       .bound = 1,
       .pipeline_slots = 2,
       .symmetric_bytes = 256},
      {.name = "crossings-one-hop", .calls = calls_of({.counts = {1, 2}, .one_hop = true}), .bound = 1},
      {.name = "crossings-one-hop-cpu",
       .atomic_bytes = 8,
       .one_thread = true,
       .payload = Payload::special,
       .calls = calls_of({.counts = {1, 0}, .count = 7, .one_hop = true}),
       .bound = 1},
      {.name = "crossings-one-go", .calls = calls_of({.counts = {0, 1}}), .bound = 1},
      {.name = "crossings-one-go-torn8",
       .atomic_bytes = 8,
       .payload = Payload::special,
       .calls = calls_of({.counts = {1, 0}, .count = 7}),
       .bound = 1},
      {.name = "crossings-one-go-cpu",
       .atomic_bytes = 8,
       .one_thread = true,
       .calls = calls_of({.counts = {0, 1}}),
       .bound = 1},
      // Lines, of which two carry a pack of payload.
      {.name = "crossings-wrap32",
       .type = DataType::i32,
       .start_epoch = 0xfffffffeu,
       .calls = calls_of({.counts = {0, 1}, .count = 4}),
       .bound = 1},
      {.name = "crossings-chunks",
       .calls = calls_of({.counts = {2, 1}, .flows = true}),
       .bound = 1,
       .pipeline_slots = 2},
      {.name = "crossings-chunks-cpu",
       .atomic_bytes = 8,
       .one_thread = true,
       .calls = calls_of({.counts = {1, 3}, .flows = true}),
       .bound = 1},
      // A block sends, another one sums, and a third one receives.
      {.name = "crossings-chunks-apart",
       .calls = {call_of({.moving = Moving::gather_sums, .counts = {2, 1}, .flows = true, .grids = apart}),
                 call_of({.moving = Moving::scatter_sums, .counts = {1, 1}, .flows = true, .grids = apart})},
       .bound = 1,
       .pipeline_slots = 2},
      // Blocks of two threads, so that a barrier of the block can be missing.
      {.name = "crossings-threads",
       .calls = {call_of({.counts = {1, 1}, .flows = true, .count = 16, .grids = {{.blocks = 2, .threads = 2}}})},
       .bound = 1,
       .pipeline_slots = 2,
       .pipeline_packs = 2},
      {.name = "crossings-threads-apart",
       .calls = {call_of({.counts = {2, 0}, .flows = true, .count = 16, .grids = {{.blocks = 4, .threads = 2}}})},
       .bound = 1,
       .pipeline_slots = 2,
       .pipeline_packs = 2},
  };
}

// Beside all-reduces and gathers, whose areas they share; groups of two and of all.
std::vector<Setup> large_crossing_setups() {
  std::vector<Setup> setups;
  for (const unsigned ranks : {2u, 3u, 4u}) {
    std::vector<CallSetup> calls;
    for (const unsigned way : {0u, 1u, 2u}) {
      const bool flows = way == 2;
      for (unsigned group_ranks = 2; group_ranks <= ranks; ++group_ranks) {
        if (ranks % group_ranks != 0) continue;
        std::vector<std::int32_t> counts(ranks, 1);
        counts.front() = 3, counts.back() = 0;
        const Padding padding = flows ? Padding::aligned : Padding::fixed;
        if (!flows) counts.front() = 2;
        for (const CallSetup& call : calls_of({.counts = counts,
                                     .flows = flows,
                                     .group_ranks = group_ranks,
                                     .padding = padding,
                                     .count = 12,
                                     .one_hop = way == 0}))
          calls.push_back(call);
      }
      calls.push_back({.count = 9, .moving = Moving::all_gather, .flows = !flows});
      calls.push_back({.count = 9});
    }
    for (const Algorithm algorithm : {Algorithm::two_shot, Algorithm::pipelined}) {
      setups.push_back({.name = fmt::format("crossings-mixed-{}-ranks{}", name(algorithm), ranks),
                        .algorithm = algorithm,
                        .ranks = ranks,
                        .payload = algorithm == Algorithm::two_shot ? Payload::rounding : Payload::special,
                        .calls = calls});
    }
  }
  // Sums go to ranks of another group, which have sent nothing here: they may still be in the call before.
  setups.push_back({.name = "crossings-gathers-ranks4", .ranks = 4, .calls = {3, call_of({.counts = {1, 0, 0, 1}})}});
  // The last one has whole packs, of which a thread loads the first before it knows whose they are.
  std::vector<CallSetup> one_hops = calls_of({.counts = {1, 2, 2, 1}, .count = 9, .one_hop = true});
  one_hops.push_back(call_of({.moving = Moving::scatter_sums, .counts = {1, 2, 2, 1}, .count = 8, .one_hop = true}));
  setups.push_back(
      {.name = "crossings-one-hops-ranks4", .ranks = 4, .payload = Payload::rounding, .calls = std::move(one_hops)});
  // One block does all; others have a block for each.
  setups.push_back({.name = "crossings-grids-ranks4",
                    .ranks = 4,
                    .calls = calls_of({.counts = {3, 2, 0, 4},
                                       .flows = true,
                                       .padding = Padding::none,
                                       .grids = {{2, 1}, {5, 1}, {3, 2}, {4, 1}}}),
                    .pipeline_slots = 2});
  return setups;
}

}  // namespace weft::sim
