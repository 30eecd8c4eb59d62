// Decides when rows take a detour over all ranks' links (protocol/flow.hpp). The host, if it knows the number of rows,
// and kernels, from counts, decide alike.
#pragma once

#include <cstdint>

#include "base/function.hpp"

namespace weft::detail {

struct DetourQuery {
  std::uint32_t ranks;
  std::uint64_t slots;    // RegionLayout::pipeline_slots
  std::uint64_t longest;  // packs of the rank with the most
  std::uint64_t worth;    // least packs that the busiest link must be spared
};

// Chunks are announced, return credits, and wait for whole blocks in each of two hops. So they must spare the link more
// than lines do.
inline constexpr std::uint64_t kChunksWorth = 4;

// Without a detour the busiest link carries the longest share once for each peer. With one it carries that share once,
// and its part of all others' shares as a relay. It takes a slot for each rank (docs/protocol.md). `all()`: packs of
// all ranks, counted only if the longest share alone does not decide.
template <class All>
WEFT_FN constexpr bool takes_detour(const DetourQuery& q, All all) {
  const std::uint64_t at_once = q.longest * (q.ranks - 1);
  if (q.ranks < 3 || q.slots < q.ranks || at_once <= q.worth) return false;
  const std::uint64_t others = all() - q.longest;
  return at_once > q.worth + q.longest + others * (q.ranks - 2) / (q.ranks - 1);
}

}  // namespace weft::detail
