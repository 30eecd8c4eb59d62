// One block's part in one call: its epoch, its bank, and its waits.
#pragma once

#include <cstdint>

#include "base/function.hpp"
#include "protocol/channel.hpp"
#include "team/team.hpp"
#include "weft/error.hpp"

namespace weft::detail {

struct Session {
  const Call* call;
  // This block's words in LocalState.
  std::uint32_t* epoch_word;
  const std::uint32_t* admitted_word;
  std::uint32_t epoch;
  bool overlapped;  // first thread of the control block: another call of this group was running when this one began

  WEFT_FN std::uint32_t rank() const { return call->rank; }
  WEFT_FN std::uint32_t size() const { return call->size; }
  WEFT_FN const RegionLayout& layout() const { return call->layout; }
};

// The part of a session that the cold paths need. It is small: each word that a kernel passes them is a register which
// its hot path misses. It has no address of the call: kernels must not take their arguments' address
// (tests/ptx/check_arguments.py).
struct CallId {
  const Channel* channel;
  std::uint32_t epoch, fingerprint;
};
WEFT_FN CallId id_of(const Session& s) {
  return {s.call->channel, s.epoch, s.call->fingerprint};
}

WEFT_FN bool epoch_reached(std::uint32_t got, std::uint32_t want) {
  return static_cast<std::int32_t>(got - want) >= 0;  // epochs wrap
}

// A number on the device that does not fit.
struct MisfitInfo {
  Misfit what = Misfit::none;
  std::uint32_t place = 0;
  std::int64_t value = 0, limit = 0;
};

struct FaultInfo {
  Errc code;
  std::uint32_t peer = kNoPeer;  // world rank to blame; kNoPeer: no other rank
  std::uint32_t epoch_seen = 0;
  std::uint32_t theirs = 0;
  std::uint32_t phase = 0;
  std::uint32_t word = 0;  // poison that this rank got, and passes on unchanged; 0: the fault is its own
};

template <Team T>
WEFT_FN void end_group(T& team, LocalState* local) {
  team.store(&local->dead, 1u);
  WEFT_NO_UNROLL
  for (BlockWord& word : local->admitted) team.store(&word.value, kEnded);
}

// The first thread that reports a fault of its kind writes the record. Every other thread stays here until it is
// written, because the host looks for the reason as soon as it sees a call end. A host that forgets a stale replay
// frees its claim.
template <Team T>
WEFT_FN void await_record(T& team, const Channel* channel, FaultKind kind) {
  const std::uint64_t began = team.now();
  WEFT_NO_UNROLL
  for (std::uint32_t spins = 1; team.load(&channel->record[kind].complete) == 0; ++spins) {
    const bool forgotten = kind == kStaleReplay && team.load(channel->claim + kind) == 0;
    if (forgotten || team.now() - began > kRecordPatienceNs) return;
    team.relax(spins);
  }
}

// Ends the group on this rank. Writes the record for the host, if it is the communicator's first fault of its kind.
// Ends the communicator at every peer. On return the record is there.
template <Team T>
WEFT_FN void record_fault(T& team, CallId id, FaultInfo info, const MisfitInfo& misfit) {
  const Channel* channel = id.channel;
  const bool local_matter = info.code == Errc::released;  // peers that miss this call find out by themselves
  if (!local_matter) end_group(team, id.channel->local);
  const FaultKind kind = local_matter ? kStaleReplay : kEnding;
  if (team.exchange(channel->claim + kind, 1u) != 0) return await_record(team, channel, kind);
  FaultRecord* record = channel->record + kind;
  team.store(&record->code, static_cast<std::uint32_t>(info.code));
  team.store(&record->channel, channel->id);
  team.store(&record->peer, info.peer);
  team.store(&record->reporter, info.word != 0 ? poison_reporter(info.word) : kNoPeer);
  team.store(&record->epoch_wanted, id.epoch);
  team.store(&record->epoch_seen, info.epoch_seen);
  team.store(&record->fingerprint, id.fingerprint);
  team.store(&record->theirs, info.theirs);
  team.store(&record->phase, info.phase);
  team.store(&record->misfit, static_cast<std::uint32_t>(misfit.what));
  team.store(&record->misfit_place, misfit.place);
  const auto put = [&](std::uint32_t(&halves)[2], std::int64_t value) {
    team.store(&halves[0], static_cast<std::uint32_t>(value));
    team.store(&halves[1], static_cast<std::uint32_t>(value >> 32));
  };
  put(record->misfit_value, misfit.value);
  put(record->misfit_limit, misfit.limit);
  team.store_release(&record->complete, 1u);
  if (local_matter) return;
  const std::uint32_t culprit = info.peer == kNoPeer ? channel->world_rank : info.peer;
  const std::uint32_t own_word = poison_word(channel->world_rank, culprit, static_cast<std::uint32_t>(info.code));
  const std::uint32_t word = info.word != 0 ? info.word : own_word;
  WEFT_NO_UNROLL
  for (std::uint32_t peer = 0; peer < channel->world_size; ++peer) {
    team.store(reinterpret_cast<std::uint32_t*>(channel->window[peer] + kPoisonOffset), word);
  }
}

// Never on the path of a call that works. Each is one function that calls no other: an inner call would cost every
// kernel registers and a stack.
template <Team T>
WEFT_SLOW void report(T& team, CallId id, FaultInfo info) {
  record_fault(team, id, info, {});
}
template <Team T>
WEFT_SLOW void report_misfit(T& team, CallId id, FaultInfo info, MisfitInfo misfit) {
  record_fault(team, id, info, misfit);
}

// False, with a report, if peers' poison `word` says that the communicator has ended.
template <Team T>
WEFT_FN bool unpoisoned(T& team, CallId id, std::uint32_t word, std::uint32_t phase) {
  if (word == 0) return true;
  const bool aborted = poison_code(word) == static_cast<std::uint32_t>(Errc::aborted);
  const Errc code = aborted ? Errc::aborted : Errc::peer_failed;
  report(team, id,
         {.code = code, .peer = poison_culprit(word), .theirs = poison_code(word), .phase = phase, .word = word});
  return false;
}

struct WaitSite {
  std::uint32_t phase;
  bool control = false;  // data blocks give up a little later than the control block, which knows more
  // All lanes of a warp wait for the same: `ready()` is equal in all of them, and may ask for other lanes' values.
  bool warp = false;
};

// The state that a wait keeps from its last look around.
struct WaitState {
  std::uint64_t began = 0;       // time of the first look; 0 before it, and once the call has failed
  std::uint32_t gone = kNoPeer;  // a rank that the wait needs, and whose process is gone
};

// The header of the newest call that `peer` was seen to have entered: one of the banks has it.
template <Team T>
WEFT_FN std::uint64_t newest_header(T& team, const Channel* channel, std::uint32_t peer) {
  const auto* headers =
      reinterpret_cast<const std::uint64_t*>(channel->region[channel->rank] + channel->layout.headers);
  std::uint64_t newest = team.load(headers + peer);
  for (std::uint32_t bank = 1; bank < kBanks; ++bank) {
    const std::uint64_t header = team.load(headers + (bank * channel->size + peer));
    if (epoch_reached(static_cast<std::uint32_t>(header >> 32), static_cast<std::uint32_t>(newest >> 32))) {
      newest = header;
    }
  }
  return newest;
}

// Whether `peer` has rejected this call and has made no other yet. Its rejections must outnumber those of this rank,
// which may have tried in vain as well (comm/rejection.hpp).
template <Team T>
WEFT_FN bool has_rejected(T& team, CallId id, std::uint32_t peer) {
  const Channel* channel = id.channel;
  const auto* words = reinterpret_cast<const std::uint64_t*>(channel->region[channel->rank] + channel->layout.headers) +
                      kBanks * channel->size;
  const auto times = [&](std::uint32_t rank) {
    const std::uint64_t word = team.load(words + rank);
    return static_cast<std::uint32_t>(word >> 32) == id.epoch ? static_cast<std::uint32_t>(word) : 0u;
  };
  return times(peer) > times(channel->rank);
}

// A long wait calls it now and then: is there still hope? `peer`: a group rank that the wait needs. kNoPeer: no peer's
// data is missing; then there is hope until the group has ended.
template <Team T>
WEFT_SLOW WaitState worth_waiting(T& team, CallId id, std::uint32_t peer, WaitSite site, WaitState state) {
  const Channel* channel = id.channel;
  const auto* poison = reinterpret_cast<const std::uint32_t*>(channel->window[channel->world_rank] + kPoisonOffset);
  const auto fail = [&](FaultInfo info) {
    info.phase = site.phase;
    report(team, id, info);
    return WaitState{};
  };
  if (!unpoisoned(team, id, team.load(poison), site.phase)) return {};
  if (team.load(channel->abort) != 0) return fail({.code = Errc::aborted, .peer = channel->world_rank});
  // A wait without a peer to blame fails only once another wait has ended the group. Poison may be missing: while an
  // earlier fault is still on record, peers were told of that fault alone.
  if (peer == kNoPeer) return {.began = team.load(&id.channel->local->dead) == 0 ? team.now() : 0};
  if (has_rejected(team, id, peer)) {
    return fail(
        {.code = Errc::mismatch, .peer = channel->member[peer], .epoch_seen = id.epoch, .theirs = kRejectedCall});
  }
  // A rank that has sent everything may leave: only the death of a late rank matters. Its last words before it went are
  // looked for once more.
  if (team.dead_peer() == static_cast<int>(channel->member[peer])) {
    if (state.gone == peer) return fail({.code = Errc::peer_died, .peer = channel->member[peer]});
    state.gone = peer;
  }

  const std::uint64_t now = team.now();
  if (state.began == 0) state.began = now;
  const std::uint64_t waited = now - state.began;
  if (waited > slow_wait_ns(channel->deadline_ns) && team.load(&channel->record->slow_epoch) != id.epoch) {
    team.store(&channel->record->slow_peer, channel->member[peer]);
    team.store(&channel->record->slow_epoch, id.epoch);
  }
  if (channel->deadline_ns == 0) return state;
  const std::uint64_t limit = channel->deadline_ns + (site.control ? 0 : channel->deadline_ns / 4);
  if (waited <= limit) return state;
  const std::uint64_t header = newest_header(team, channel, peer);
  return fail({.code = Errc::timeout,
               .peer = channel->member[peer],
               .epoch_seen = static_cast<std::uint32_t>(header >> 32),
               .theirs = static_cast<std::uint32_t>(header)});
}

// Polls until `ready()`; false when the call has failed. `late()` names a group rank that the wait still needs. It is
// kNoPeer in a lane that has all of its own data while other lanes of its warp have not.
template <Team T, class Ready, class Late>
WEFT_FN bool wait(T& team, const Session& s, WaitSite site, Ready ready, Late late) {
  WaitState state;
  for (std::uint32_t spins = 1;; ++spins) {
    if (ready()) return true;
    team.relax(spins);
    if (spins % T::kSpinsPerCheck != 0) continue;
    state = worth_waiting(team, id_of(s), late(), site, state);
    const bool good = state.began != 0;
    if (!(site.warp ? team.all_lanes(good) : good)) return false;
  }
}

// All phases, unless the algorithm says that a work has its own.
template <class A>
WEFT_FN Phases phases_of(const typename A::Work& work) {
  if constexpr (requires { A::phases(work); }) return A::phases(work);
  return {};
}

// By phases, unless the algorithm says that several launches make one phase.
template <class A>
WEFT_FN Turn turn_of(const typename A::Work& work) {
  if constexpr (requires { A::turn(work); }) return A::turn(work);
  const Phases phases = phases_of<A>(work);
  return {phases.first, phases.end(A::kPhases) ? kIdle : phases.last + 1u};
}

// Before a call begins: everything that can be computed while the previous kernel still runs.
template <Team T>
WEFT_FN Session approach(T& team, const Call& call) {
  Session s{.call = &call,
            .epoch_word = &call.local->epochs[team.block_rank()].value,
            .admitted_word = &call.local->admitted[team.block_rank()].value,
            .epoch = 0,
            .overlapped = false};
  team.settle(s.epoch_word);
  team.settle(s.admitted_word);
  return s;
}

// This block's words in LocalState, loaded first because everything else waits for them.
struct Entry {
  std::uint32_t epoch, admitted;
};
template <Team T>
WEFT_FN Entry ask(T& team, const Session& s) {
  return {.epoch = team.load(s.epoch_word), .admitted = team.load(s.admitted_word)};
}

// For a thread whose block may not begin: its windows are gone, or the group has ended. The thread that has ended it
// may still be writing the record.
template <Team T>
WEFT_SLOW void turn_away(T& team, CallId id, std::uint32_t admitted) {
  if (admitted != kEnded) return report(team, id, {.code = Errc::released});
  if (team.thread_rank() == 0) await_record(team, id.channel, kEnding);
}

// Begins a call. False: the group has ended (or sleeps), and nothing may be sent. If a peer has ended the communicator
// meanwhile, the control block (handshake.hpp) and every wait see it. To read that word here would put one more
// dependent load before the first store.
template <Team T>
WEFT_FN bool enter(T& team, Session& s, const Entry& entry, const Turn& turn) {
  s.epoch = entry.epoch;
  const std::uint32_t admitted = entry.admitted;
  if (admitted != s.call->generation) {
    turn_away(team, id_of(s), admitted);
    return false;
  }
  if (team.block_rank() == 0 && team.thread_rank() == 0) {
    s.overlapped = team.exchange(&s.call->local->busy, kBusy) != turn.own;
  }
  return true;
}

// The threads that exchange values in a call, so that all of them must begin it, or none. For another block of this
// launch may end the group meanwhile, so that some threads find it dead and others do not.
enum class BeginScope : std::uint8_t { thread, warp, block };
// An algorithm's answer: A::begin_scope<T>(work) for one call, A::kBeginScope for all calls, or neither (thread).
template <class A, Team T>
WEFT_FN constexpr BeginScope begin_scope_in([[maybe_unused]] const typename A::Work& work) {
  if constexpr (requires { A::template begin_scope<T>(work); }) return A::template begin_scope<T>(work);
  if constexpr (requires { A::kBeginScope; }) return A::kBeginScope;
  return BeginScope::thread;
}

// Begins a call together with the threads that must begin with this one.
template <class A, Team T>
WEFT_FN bool enter_as(T& team, Session& s, const Entry& entry, const Turn& turn, const typename A::Work& work) {
  const BeginScope who = begin_scope_in<A, T>(work);
  const bool entered = enter(team, s, entry, turn);
  if (who == BeginScope::block) return team.all(entered);
  if (who == BeginScope::warp) return team.all_lanes(entered);
  return entered;
}

// False, with a report, if another launch of the group was running on this rank when this one began. So it is if the
// turn is another one's.
template <Team T>
WEFT_FN bool alone(T& team, const Session& s, std::uint32_t phase) {
  if (!s.overlapped) return true;
  report(team, id_of(s), {.code = Errc::overlap, .phase = phase});
  return false;
}

// Ends a launch. With the last turn this block's epoch moves on. Block 0 also moves the words of blocks that this
// launch did not have, so that the next launch may have any grid. An earlier turn leaves the epochs alone.
template <Team T>
WEFT_FN void leave(T& team, const Session& s, const Turn& turn) {
  static_assert(T::kMostBlocks <= kMaxBlocks);
  team.sync();
  if (turn.next != kIdle) {
    if (team.block_rank() != 0 || team.thread_rank() != 0) return;
    static_cast<void>(alone(team, s, 0));  // no wait of this launch asks
    team.store(&s.call->local->busy, turn.next);
    return;
  }
  const std::uint32_t next = s.epoch + 1;
  if (team.block_rank() != 0) {
    if (team.thread_rank() == 0) team.store(s.epoch_word, next);
    return;
  }
  if (team.thread_rank() == 0) {
    team.store(s.epoch_word, next);
    team.store(&s.call->local->busy, kIdle);
  }
  for (std::uint32_t block = team.blocks() + team.thread_rank(); block < T::kMostBlocks; block += team.size()) {
    team.store(&s.call->local->epochs[block].value, next);
  }
}

// For algorithms that load nothing before they know their epoch.
struct PrefetchesNothing {
  struct Prefetched {};
  template <Team T, class Work, class ThreadPlan>
  static WEFT_FN Prefetched prefetch(T&, const Session&, const Work&, const ThreadPlan&) {
    return {};
  }
};

}  // namespace weft::detail
