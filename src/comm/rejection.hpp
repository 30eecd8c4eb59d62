// A rank that has rejected a call tells the others, which would wait for it until their deadlines.
//
// A rejection is no call: no epoch passes, and no rank waits. Each peer gets a word with the number of this rank's next
// call, and how often this rank has rejected a call in its place. A rank that waits for a peer in that call compares
// the word with its own (session.hpp, has_rejected). If all ranks pass the same wrong argument, all reject the call
// alike. Then nothing has happened, and the next call works.
#pragma once

#include <cstdint>

#include "protocol/session.hpp"

namespace weft::detail {

struct Rejection {
  using Work = NoWork;
  static constexpr int kMostThreads = 128;
  static_assert(kMostThreads >= static_cast<int>(kMaxRanks));

  // Call it in all threads of a block.
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
