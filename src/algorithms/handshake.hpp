// The control block's part of every collective: one word to every peer, one from every peer.
//
// The word carries the epoch and a fingerprint of the call. It tells three things: that the peer has entered this call,
// hence finished the one before it, hence may be written to in the next (the rule that two banks rest on); that the
// peer makes the same call; and, while it is missing, who is late. No rank ends a call before it has compared all of
// them.
#pragma once

#include <cstdint>

#include "core/session.hpp"

namespace weft::detail {

template <Team T>
WEFT_FN void send_headers(T& team, const Session& s) {
  const std::uint64_t word = static_cast<std::uint64_t>(s.epoch) << 32 | s.call->fingerprint;
  for (std::uint32_t peer = team.thread_rank(); peer < s.size(); peer += team.size()) {
    if (peer != s.rank()) team.store(s.header(peer, s.rank()), word);
  }
}

template <Team T>
WEFT_FN bool compare_headers(T& team, const Session& s, std::uint32_t phase) {
  if (s.overlapped) {
    report(team, id_of(s), {.code = Errc::overlap, .phase = phase});
    return false;
  }
  if (s.size() == 1) {  // abort() counts without a peer, too
    return team.thread_rank() != 0 || unpoisoned(team, id_of(s), team.load(s.call->poison), phase);
  }
  const std::uint64_t mine = static_cast<std::uint64_t>(s.epoch) << 32 | s.call->fingerprint;
  for (std::uint32_t peer = team.thread_rank(); peer < s.size(); peer += team.size()) {
    if (peer == s.rank()) continue;
    std::uint64_t word = 0;
    std::uint32_t ended = 0;
    const auto arrived = [&] {
      word = team.load(s.header(s.rank(), peer));
      ended = team.load(s.call->poison);
      return ended != 0 || epoch_reached(static_cast<std::uint32_t>(word >> 32), s.epoch);
    };
    if (!wait(team, s, {.phase = phase, .control = true}, arrived, [&] { return peer; })) return false;
    if (!unpoisoned(team, id_of(s), ended, phase)) return false;
    if (word != mine) {
      report(team, id_of(s),
             {.code = Errc::mismatch,
              .peer = s.call->channel->member[peer],
              .epoch_seen = static_cast<std::uint32_t>(word >> 32),
              .theirs = static_cast<std::uint32_t>(word),
              .phase = phase});
      return false;
    }
  }
  return true;
}

}  // namespace weft::detail
