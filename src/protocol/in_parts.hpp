// Parts of a block that work at the same time, each on something of its own.
#pragma once

#include <cstdint>

#include "team/team.hpp"

namespace weft::detail {

// Calls `serve(part, number, parts)` with the part's team, for `items` to share. Parts are warp groups if a block of
// several works as one and there is an item for each; else the block is the only part. While one part waits for its
// loads, the others use the processor. All threads of the block make the call, with equal items. Behind it they meet
// before one reads what another part has written. A part has its threads, its scratch words and a barrier; all other
// things of a team are the block's.
template <Team T, class Serve>
WEFT_FN auto in_parts(T& team, std::uint32_t items, Serve serve) {
  if constexpr (requires { team.part(items); }) {
    auto part = team.part(items);
    return serve(part.team, part.number, part.parts);
  } else {
    return serve(team, 0u, 1u);
  }
}

}  // namespace weft::detail
