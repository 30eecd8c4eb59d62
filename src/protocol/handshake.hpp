// The control block's part of every collective: one word to every peer, one from every peer.
//
// The word carries the epoch and a fingerprint of the call, with a hash of its counts if it has any. It tells three
// things. First, the peer has entered this call, so it has finished the one before, so it may be written to in the
// next: the rule that two banks rest on. Second, the peer makes the same call. Third, while the word is missing, the
// peer is late. No rank ends a call before it has compared all words.
#pragma once

#include <cstdint>

#include "protocol/session.hpp"

namespace weft::detail {

// `counts`: 0, or a hash of a ragged call's counts. It changes the upper half of the fingerprint; the lower half still
// names the call.
WEFT_FN std::uint64_t header_word(const Session& s, std::uint64_t counts) {
  const auto hash = static_cast<std::uint32_t>(counts ^ counts >> 16);
  return static_cast<std::uint64_t>(s.epoch) << 32 | (s.call->fingerprint ^ hash << 16);
}

// The places of a control-block thread's header for `peer`, and of that peer's header, in bank 0.
struct HeaderAddress {
  std::uint64_t* to;
  const std::uint64_t* from;
};
// `known_size`: of the group, or 0.
template <std::uint32_t known_size>
WEFT_FN HeaderAddress header_address(const Call& call, std::uint32_t peer) {
  const auto headers = [&](std::uint32_t owner) {
    std::byte* const region = known_size != 0 ? call.region[owner] : region_of(call, owner);
    return reinterpret_cast<std::uint64_t*>(region + call.layout.headers);
  };
  return {.to = headers(peer) + call.rank, .from = headers(call.rank) + peer};
}

// One instance per known group size. The place of a thread's first peer is computed before the epoch is known.
template <std::uint32_t known_size>
struct Handshake {
  static WEFT_FN std::uint32_t size(const Call& call) { return known_size != 0 ? known_size : call.size; }

  template <Team T>
  static WEFT_FN HeaderAddress address(T& team, const Call& call) {
    HeaderAddress address{};
    if (team.thread_rank() < size(call)) address = header_address<known_size>(call, team.thread_rank());
    team.settle(address.to);
    team.settle(address.from);
    return address;
  }
  // True in the control block, whose threads need nothing but `first`, their own place.
  template <Team T>
  static WEFT_FN bool in_control(T& team, const Call& call, HeaderAddress& first) {
    if (team.block_rank() != 0) return false;
    first = address(team, call);
    return true;
  }
  template <Team T>
  static WEFT_FN HeaderAddress address_of(T& team, const Session& s, const HeaderAddress& first, std::uint32_t peer) {
    const std::uint32_t bank = s.epoch % kBanks * size(*s.call);
    const HeaderAddress address = peer == team.thread_rank() ? first : header_address<known_size>(*s.call, peer);
    return {.to = address.to + bank, .from = address.from + bank};
  }

  // Calls `serve(peer)` for this thread's peers, until it returns false.
  template <Team T, class Serve>
  static WEFT_FN bool each_peer(T& team, const Session& s, Serve serve) {
    for (std::uint32_t peer = team.thread_rank(); peer < size(*s.call); peer += team.size()) {
      if (peer != s.rank() && !serve(peer)) return false;
      if (known_size != 0 && known_size <= T::kLeastThreads) break;  // no thread has a second one
    }
    return true;
  }

  template <Team T>
  static WEFT_FN void send(T& team, const Session& s, const HeaderAddress& first, std::uint64_t counts = 0) {
    const std::uint64_t word = header_word(s, counts);
    each_peer(team, s, [&](std::uint32_t peer) {
      team.store(address_of(team, s, first, peer).to, word);
      return true;
    });
  }

  // The control block's part of an algorithm of two phases.
  template <int phase, Team T>
  static WEFT_FN bool take_part(T& team, const Session& s, const HeaderAddress& first, std::uint64_t counts = 0) {
    if constexpr (phase == 1)
      return compare(
          team, s, first, phase, [](std::uint32_t) {}, counts);
    send(team, s, first, counts);
    return true;
  }

  template <Team T>
  static WEFT_FN bool compare(T& team, const Session& s, const HeaderAddress& first, std::uint32_t phase) {
    return compare(team, s, first, phase, [](std::uint32_t) {});
  }
  // `seen(peer)` is called when the peer's header has come.
  template <Team T, class Seen>
  static WEFT_FN bool compare(T& team, const Session& s, const HeaderAddress& first, std::uint32_t phase, Seen seen,
                              std::uint64_t counts = 0) {
    if (!alone(team, s, phase)) return false;
    if (size(*s.call) == 1) {  // abort() counts without a peer, too
      return team.thread_rank() != 0 || unpoisoned(team, id_of(s), team.load(s.call->poison), phase);
    }
    const std::uint64_t mine = header_word(s, counts);
    return each_peer(team, s, [&](std::uint32_t peer) {
      const std::uint64_t* const from = address_of(team, s, first, peer).from;
      std::uint64_t word = 0;
      std::uint32_t ended = 0;
      const auto arrived = [&] {
        word = team.load(from);
        ended = team.load(s.call->poison);
        return ended != 0 || epoch_reached(static_cast<std::uint32_t>(word >> 32), s.epoch);
      };
      if (!wait(team, s, {.phase = phase, .control = true}, arrived, [&] { return peer; })) return false;
      if (!unpoisoned(team, id_of(s), ended, phase)) return false;
      seen(peer);
      if (word == mine) return true;
      report(team, id_of(s),
             {.code = Errc::mismatch,
              .peer = s.call->channel->member[peer],
              .epoch_seen = static_cast<std::uint32_t>(word >> 32),
              .theirs = static_cast<std::uint32_t>(word),
              .phase = phase});
      return false;
    });
  }
};

}  // namespace weft::detail
