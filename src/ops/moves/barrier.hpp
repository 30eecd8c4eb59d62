// Barrier: the handshake that every call makes, and nothing else. One block.
#pragma once

#include "protocol/handshake.hpp"

namespace weft::detail {

struct Barrier : PrefetchesNothing {
  using Work = NoWork;
  using Handshake = detail::Handshake<0>;
  static constexpr std::uint32_t kSize = 0;
  static constexpr int kPhases = 2;

  using ThreadPlan = HeaderAddress;
  template <Team T>
  static WEFT_FN ThreadPlan thread_plan(T& team, const Call& call, const Work&) {
    return team.block_rank() == 0 ? Handshake::address(team, call) : HeaderAddress{};
  }

  template <int phase, Team T>
  static WEFT_FN bool run(T& team, const Session& s, const Work&, const ThreadPlan& place, const Prefetched&) {
    if (team.block_rank() != 0) return true;
    if constexpr (phase == 1) return Handshake::compare(team, s, place, 1);
    Handshake::send(team, s, place);
    return true;
  }
};

}  // namespace weft::detail
