// Parts of a block that work at the same time, each on something of its own.
#pragma once

#include <cstdint>

#include "team/team.hpp"

namespace weft::detail {

// Calls `serve(part, number, parts)` with the part's team: a warp group, if a block of several works as one, else the
// block. While one part waits for its loads, the others use the processor. All threads of the block make the call.
// Behind it they meet before one reads what another part has written.
template <Team T, class Serve>
WEFT_FN auto in_parts(T& team, Serve serve) {
  if constexpr (requires { team.part(); }) {
    auto part = team.part();
    return serve(part.team, part.number, part.parts);
  } else {
    return serve(team, 0u, 1u);
  }
}

}  // namespace weft::detail
