// Set-ups of searches for the largest numbers. Special payloads have many NaN and zeros, so that equal numbers meet.
#include <fmt/format.h>

#include <utility>

#include "sim/setup.hpp"

namespace weft::sim {
namespace {

CallSetup search(std::uint64_t columns, std::uint32_t k, std::uint64_t rows = 1) {
  return {.count = columns, .moving = Moving::top_k_columns, .rows = rows, .k = k};
}

// One candidate, several, and as many as two ranks have columns; the last rank has pads, or nothing else; parts of
// rows, of which some are empty; shards of which the first has one column more, the others a pad.
std::vector<CallSetup> searches() {
  std::vector<CallSetup> calls{search(3, 1), search(4, 3, 2), search(9, 1), search(20, 2),
                               search(2, 2), search(6, 12),   search(7, 3)};
  calls[1].columns = 5;
  calls[3].parts = 2;
  calls[4].columns = 2;
  calls[6].columns = 5;
  calls[6].even_shards = true;
  return calls;
}

std::vector<CallSetup> in_grid(std::vector<CallSetup> calls, Grid grid) {
  for (CallSetup& call : calls) call.grids = {grid};
  return calls;
}

}  // namespace

std::vector<Setup> small_top_k_setups() {
  const std::vector<CallSetup> few{search(3, 1), search(4, 2), search(3, 1)};
  return {
      {.name = "top-k", .payload = Payload::special, .calls = few, .bound = 1},
      {.name = "top-k-cpu",
       .atomic_bytes = 8,
       .one_thread = true,
       .payload = Payload::special,
       .calls = searches(),
       .bound = 1},
      {.name = "top-k-wrap31", .start_epoch = 0x7ffffffeu, .calls = few, .bound = 1},
      // Two warps find a list together, and one of them sends it.
      {.name = "top-k-threads",
       .payload = Payload::special,
       .calls = in_grid({search(20, 2), search(20, 1)}, {.blocks = 2, .threads = 2}),
       .bound = 1},
      {.name = "top-k-lanes2",
       .lanes = 2,
       .payload = Payload::special,
       .calls = in_grid({search(20, 3), search(20, 1)}, {.blocks = 2, .threads = 4}),
       .bound = 1},
  };
}

// Beside gathers and all-reduces, whose slots they share. Grids differ between ranks.
std::vector<Setup> large_top_k_setups() {
  std::vector<Setup> setups;
  for (const unsigned lanes : {1u, 8u}) {
    for (const unsigned ranks : {2u, 3u}) {
      if (lanes == 8 && ranks == 2) continue;  // steps count
      std::vector<CallSetup> calls = searches();
      calls.insert(calls.begin() + 1, {.count = 8, .moving = Moving::all_gather});
      calls.insert(calls.begin() + 3, {.count = 9});
      CallSetup large = search(50, 20);
      large.parts = 2;
      calls.push_back(std::move(large));
      for (CallSetup& call : calls) {
        if (lanes != 1 && call.moving != Moving::top_k_columns) call = search(70, 9);
        if (call.moving != Moving::top_k_columns) continue;
        call.grids = {{2, 2 * lanes}, {2, lanes}};
        if (lanes == 1) call.grids = {{3, 3}, {2, 1}, {2, 2}};
      }
      setups.push_back({.name = fmt::format("top-k-mixed-lanes{}-ranks{}", lanes, ranks),
                        .ranks = ranks,
                        .lanes = lanes,
                        .payload = Payload::special,
                        .calls = std::move(calls)});
    }
  }
  return setups;
}

}  // namespace weft::sim
