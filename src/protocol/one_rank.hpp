// Begin and failure of a kernel that is local to its rank. It is no call of the protocol, but its group may have ended,
// and its communicator may be released.
#pragma once

#include "protocol/session.hpp"

namespace weft::detail {

// Returns false, for callers to return.
template <Team T>
WEFT_FN bool fail_alone(T& team, const Call& call, Errc code, const MisfitInfo& misfit = {}) {
  if (team.block_rank() != 0 || team.thread_rank() != 0) return false;
  const CallId id{call.channel, team.load(&call.local->epochs[0].value), call.fingerprint};
  report_misfit(team, id, {.code = code}, misfit);
  return false;
}

// The same answer in all threads of a block. If the communicator is released, the record says so.
template <Team T>
WEFT_FN bool may_begin(T& team, const Call& call) {
  const std::uint32_t admitted = team.load(&call.local->admitted[team.block_rank() % kMaxBlocks].value);
  // Another call may end the group meanwhile, so that some threads find it dead and others do not.
  if (!team.all(admitted != kEnded)) {
    if (team.thread_rank() == 0) await_record(team, call.channel, kEnding);
    return false;
  }
  if (team.all(admitted == call.generation)) return true;
  return fail_alone(team, call, Errc::released);
}

}  // namespace weft::detail
