// Set-ups of gathers of columns. The protocol is the gather's own, and its set-ups search it. These show that columns
// come to their places, pads to none, on every way and beside other calls.
#include <fmt/format.h>
#include <utility>

#include "sim/setup.hpp"

namespace weft::sim {
namespace {

// Whole packs of which the last is a pad; rows of half a pack, one element short; elements that change.
std::vector<CallSetup> calls_of(bool flows) {
  const CallSetup call{.moving = Moving::all_gather_columns, .flows = flows, .rows = 2};
  std::vector<CallSetup> calls(3, call);
  calls[0].count = 8;
  calls[0].columns = 12;
  calls[1].count = 4;
  calls[1].columns = 7;
  calls[2].count = 8;
  calls[2].changed = true;
  return calls;
}
std::vector<CallSetup> symmetric_calls() {
  CallSetup call{.count = 8, .moving = Moving::all_gather_columns, .flows = true, .symmetric = true, .rows = 2};
  std::vector<CallSetup> calls(3, call);
  calls[1].count = 16;
  calls[1].columns = 24;
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
       .calls = symmetric_calls(),
       .bound = 1,
       .symmetric_bytes = 128},
  };
}

// Beside all-reduces and gathers, whose areas they share.
std::vector<Setup> large_column_setups() {
  std::vector<Setup> setups;
  for (const unsigned ranks : {2u, 3u, 4u}) {
    std::vector<CallSetup> calls = calls_of(false);
    calls.push_back({.count = 9});
    for (const CallSetup& call : calls_of(true)) calls.push_back(call);
    calls.push_back({.count = 8, .moving = Moving::all_gather, .flows = true});
    for (const CallSetup& call : symmetric_calls()) calls.push_back(call);
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
