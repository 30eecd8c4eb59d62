// Set-ups of calls that put columns together. The protocol is the gather's own, and its set-ups search it. These show
// that columns come to their places, pads to none, rows to their groups alone, on every way and beside other calls.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "sim/setup.hpp"

namespace weft::sim {
namespace {

// Whole packs of which the last is a pad; rows of half a pack, one element short; elements that change; shards of which
// the first has one column more.
std::vector<CallSetup> calls_of(bool flows, unsigned ranks = 2) {
  const CallSetup call{.moving = Moving::all_gather_columns, .flows = flows, .rows = 2};
  std::vector<CallSetup> calls(4, call);
  calls[0].count = 8;
  calls[0].columns = 12;
  calls[1].count = 4;
  calls[1].columns = 7;
  calls[2].count = 8;
  calls[2].changed = true;
  calls[3].count = 4;
  calls[3].columns = ranks + 1;
  calls[3].even_shards = true;
  return calls;
}
// In the last call each rank keeps one whole pack of its two.
std::vector<CallSetup> symmetric_calls(unsigned ranks) {
  CallSetup call{.count = 8, .moving = Moving::all_gather_columns, .flows = true, .symmetric = true, .rows = 2};
  std::vector<CallSetup> calls(3, call);
  calls[1].count = 16;
  calls[1].columns = 24;
  calls[2].count = 16;
  calls[2].columns = 8 * ranks;
  calls[2].even_shards = true;
  return calls;
}

// To groups with other numbers of rows than their peers: as they are, and changed.
std::vector<CallSetup> calls_to(std::vector<std::int32_t> counts, bool flows, unsigned group_ranks = 1) {
  CallSetup call{.count = 8,
                 .moving = Moving::all_to_all_columns,
                 .flows = flows,
                 .counts = std::move(counts),
                 .padding = flows ? Padding::max : Padding::none,
                 .group_ranks = group_ranks};
  std::vector<CallSetup> calls(2, call);
  calls[1].changed = true;
  calls[1].columns = 3;  // of four ranks the last has none
  calls[1].even_shards = true;
  std::ranges::reverse(calls[1].counts);
  return calls;
}

}  // namespace

std::vector<Setup> small_column_setups() {
  return {
      {.name = "columns-one-go", .calls = calls_of(false), .bound = 1},
      {.name = "columns-one-go-cpu", .atomic_bytes = 8, .one_thread = true, .calls = calls_of(false)},
      {.name = "columns-chunks", .calls = calls_of(true), .bound = 1, .pipeline_slots = 2},
      {.name = "columns-symmetric",
       .payload = Payload::special,
       .calls = symmetric_calls(2),
       .bound = 1,
       .symmetric_bytes = 128},
      {.name = "columns-groups-one-go", .calls = calls_to({1, 2}, false), .bound = 1},
      {.name = "columns-groups-one-go-cpu", .atomic_bytes = 8, .one_thread = true, .calls = calls_to({2, 0}, false)},
      {.name = "columns-groups-chunks", .calls = calls_to({1, 4}, true), .bound = 1, .pipeline_slots = 2},
  };
}

// Beside all-reduces and gathers, whose areas they share.
std::vector<Setup> large_column_setups() {
  std::vector<Setup> setups;
  for (const unsigned ranks : {2u, 3u, 4u}) {
    std::vector<CallSetup> calls = calls_of(false, ranks);
    calls.push_back({.count = 9});
    for (const CallSetup& call : calls_of(true, ranks)) calls.push_back(call);
    calls.push_back({.count = 8, .moving = Moving::all_gather, .flows = true});
    const std::vector<std::int32_t> counts = ranks == 3 ? std::vector{2, 0, 4} : std::vector{2, 5};
    for (const bool flows : {false, true}) {
      for (const CallSetup& call : calls_to(counts, flows, ranks == 4 ? 2 : 1)) calls.push_back(call);
    }
    for (const CallSetup& call : symmetric_calls(ranks)) calls.push_back(call);
    calls.push_back({.count = 8, .moving = Moving::all_gather});
    setups.push_back({.name = fmt::format("columns-mixed-ranks{}", ranks),
                      .ranks = ranks,
                      .calls = std::move(calls),
                      .pipeline_slots = 2,
                      .symmetric_bytes = 256});
  }
  return setups;
}

}  // namespace weft::sim
