// The grid of a dispatch or a combine: its number of blocks and of threads.
#pragma once

#include <cstdint>

#include "ops/moe/exchange.hpp"
#include "protocol/channel.hpp"
#include "team/team.hpp"
#include "weft/launch.hpp"

namespace weft::detail {

struct ExchangeGrid {
  int blocks, threads;
  std::uint32_t senders;  // as in DispatchWork and CombineWork
  bool pairs;             // as in CombineWork
  std::uint32_t warp_groups = 1;
  bool tallies = false;  // as in DispatchQuery
};

struct ExchangeGridArgs {
  const ExchangeShape& shape;
  std::uint32_t ranks;        // of the group
  std::uint32_t tokens;       // of this rank
  std::uint32_t most_tokens;  // as in DispatchArgs
  bool ring;                  // rows flow through a ring
  Phases phases;
  Launch launch;            // what of it is not 0 is taken as it is
  int most_blocks;          // of one call, the control block included
  bool one_thread = false;  // on a CPU rank
  bool rounds = false;      // a dispatch's: more than one
};
// If the caller does not know the most tokens of a rank, the grid is for as many as the exchange has room for: a rank
// with few tokens may receive many rows, and all others wait for it.
ExchangeGrid dispatch_grid(const ExchangeGridArgs& args);
ExchangeGrid combine_grid(const ExchangeGridArgs& args);

// The most threads of a block: threads cast rows, so few processors need many.
inline constexpr int kRingDispatchThreads = static_cast<int>(kMostWarpGroups * kWarpGroupThreads);

// The most blocks of the ring path: stages leave room for one on each processor. Other kernels may have one more, since
// small blocks share one.
constexpr int most_ring_blocks(int most_blocks) {
  return most_blocks > 2 ? most_blocks - 1 : 2;
}

// Whether the ring path can run with so many threads in a block: warps that divide a ring's places, or whole warp
// groups.
constexpr bool suits_ring(int threads) {
  return threads == 0 || threads == 32 || threads == 64 || threads % static_cast<int>(kWarpGroupThreads) == 0;
}

}  // namespace weft::detail
