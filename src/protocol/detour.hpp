// When rows take a detour over all ranks' links (protocol/flow.hpp): decided alike by the host, where it knows how
// many there are, and by kernels from counts.
#pragma once

#include <cstdint>

#include "base/function.hpp"

namespace weft::detail {

struct DetourQuery {
  std::uint32_t ranks;
  std::uint64_t slots;    // RegionLayout::bulk_slots
  std::uint64_t longest;  // packs of the rank that has most
  std::uint64_t worth;    // packs that the busiest link must be spared
};

// Chunks announce themselves, are paid for, and wait for whole blocks in each of two hops: they must spare the link
// more than lines do.
inline constexpr std::uint64_t kChunksWorth = 4;

// Without a detour the busiest link carries the longest share once for each peer. With one, that share once, and of
// everybody else's its part as a relay. It takes a slot for each rank (docs/protocol.md). `all()`: packs of all ranks,
// which are counted where the longest share alone does not decide.
template <class All>
WEFT_FN constexpr bool takes_detour(const DetourQuery& q, All all) {
  const std::uint64_t at_once = q.longest * (q.ranks - 1);
  if (q.ranks < 3 || q.slots < q.ranks || at_once <= q.worth) return false;
  const std::uint64_t others = all() - q.longest;
  return at_once > q.worth + q.longest + others * (q.ranks - 2) / (q.ranks - 1);
}

}  // namespace weft::detail
