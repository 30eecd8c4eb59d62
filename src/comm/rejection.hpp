// A rank that has rejected a call tells the others, which would wait for it until their deadlines.
//
// It is no call: no epoch passes, and nothing is waited for. The word that each peer gets names the call that this rank
// makes next, and how often it has rejected one in its place. Who waits for a peer in that call compares this with its
// own number (session.hpp, has_rejected): where all ranks have rejected a call alike, as they do where all pass the
// same wrong argument, nothing has happened, and the next call works.
#pragma once

#include <cstdint>

#include "protocol/session.hpp"

namespace weft::detail {

struct Rejection {
  using Work = NoWork;
  static constexpr int kMostThreads = 128;
  static_assert(kMostThreads >= static_cast<int>(kMaxRanks));

  // By all threads of a block.
  template <Team T>
  static WEFT_FN bool run(T& team, const Call& call, const Work&) {
    if (team.block_rank() != 0) return true;
    if (!team.all(team.load(&call.local->admitted[0].value) == call.generation)) return false;
    const std::uint32_t epoch = team.load(&call.local->epochs[0].value);
    const std::uint64_t own = team.load(place(call, call.rank));
    const std::uint64_t next =
        static_cast<std::uint32_t>(own >> 32) == epoch ? own + 1 : static_cast<std::uint64_t>(epoch) << 32 | 1u;
    team.sync();
    for (std::uint32_t peer = team.thread_rank(); peer < call.size; peer += team.size()) {
      team.store(place(call, peer), next);
    }
    return true;
  }

 private:
  static WEFT_FN std::uint64_t* place(const Call& call, std::uint32_t owner) {
    auto* const headers = reinterpret_cast<std::uint64_t*>(region_of(call, owner) + call.layout.headers);
    return headers + kBanks * call.size + call.rank;
  }
};

}  // namespace weft::detail
