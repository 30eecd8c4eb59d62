// Chunks flow through a fixed number of slots, for messages too large for slots of their own. Signals announce them,
// and credits pay for them (wire/signal.hpp).
//
// One block on either side serves a chunk; each side chooses its block. A chunk's slot is free once the reader has
// returned the credit of the slot's chunk before. A call ends only when all credits of its chunks are back: so every
// call finds all slots that it writes to free.
#pragma once

#include <cstdint>

#include "protocol/detour.hpp"
#include "protocol/session.hpp"
#include "wire/signal.hpp"

namespace weft::detail {

// Waits until the signal `wanted` of `peer` has come to `at`. False when the call has failed.
template <Team T>
WEFT_FN bool await_signal(T& team, const Session& s, const std::uint64_t* at, std::uint64_t wanted,
                          std::uint32_t peer) {
  return wait(
      team, s, {.phase = 1}, [&] { return signal_reached(team.load_acquire(at), wanted); }, [&] { return peer; });
}

struct Flow {
  const Session* session;
  std::uint64_t first_slot, slots;  // of the area that pipelined all-reduces scatter to
  std::uint64_t stride;             // every so many chunks one takes the way between two given ranks

  WEFT_FN const RegionLayout& layout() const { return session->layout(); }
  WEFT_FN std::uint64_t chunk_packs() const { return layout().pipeline_packs; }
  WEFT_FN std::uint64_t chunks_of(std::uint64_t packs) const { return (packs + chunk_packs() - 1) / chunk_packs(); }
  // Packs in a chunk of a message with `packs` packs.
  WEFT_FN std::uint32_t packs_in(std::uint64_t chunk, std::uint64_t packs) const {
    const std::uint64_t first = chunk * chunk_packs(), left = packs > first ? packs - first : 0;
    return static_cast<std::uint32_t>(left < chunk_packs() ? left : chunk_packs());
  }
  // Whether no later one of `chunks` chunks takes its slot: then no chunk waits for its credit.
  WEFT_FN bool is_last_in_slot(std::uint64_t chunk, std::uint64_t chunks) const {
    return chunk < chunks && chunk + slots * stride >= chunks;
  }

  // The role of a data block. Half of the blocks send, and the others receive, so that the wire is never idle while a
  // block waits for its signal or copies. A single block does both, in turns. Chunks are dealt to the `blocks` blocks
  // with the same role.
  struct Role {
    bool sends, receives;
    std::uint32_t block, blocks;
  };
  template <Team T>
  static WEFT_FN Role role_of(T& team) {
    const std::uint32_t block = team.block_rank() - 1, blocks = team.blocks() - 1, senders = team.blocks() / 2;
    if (blocks == 1) return {.sends = true, .receives = true, .block = 0, .blocks = 1};
    if (block < senders) return {.sends = true, .receives = false, .block = block, .blocks = senders};
    return {.sends = false, .receives = true, .block = block - senders, .blocks = blocks - senders};
  }

  WEFT_FN std::uint64_t place(std::uint64_t chunk, std::uint32_t from) const {
    return (first_slot + chunk / stride % slots) * session->size() + from;
  }
  WEFT_FN Pack* area(std::uint32_t owner) const {
    return reinterpret_cast<Pack*>(region_of(*session->call, owner) + layout().pipeline_scatter);
  }
  // The same in all areas.
  WEFT_FN std::uint64_t slot_packs(std::uint64_t chunk, std::uint32_t sender) const {
    return place(chunk, sender) * chunk_packs();
  }
  WEFT_FN Pack* slot(std::uint32_t owner, std::uint64_t chunk, std::uint32_t sender) const {
    return area(owner) + slot_packs(chunk, sender);
  }
  WEFT_FN std::uint64_t* word(std::uint64_t area, std::uint32_t owner, std::uint64_t chunk, std::uint32_t from) const {
    return reinterpret_cast<std::uint64_t*>(region_of(*session->call, owner) + area) + place(chunk, from);
  }

  // Calls `serve(peer)` for this thread's peers; true in all threads of the block if all calls were true.
  template <Team T, class Serve>
  static WEFT_FN bool each_peer(T& team, const Session& s, Serve serve) {
    bool good = true;
    for (std::uint32_t turn = 1 + team.thread_rank(); good && turn < s.size(); turn += team.size()) {
      good = serve(rank_after(s.rank(), turn, s.size()));
    }
    return team.all(good);
  }
  // The same for calls that cannot fail; no thread waits for the others.
  template <Team T, class Tell>
  static WEFT_FN void tell_peers(T& team, const Session& s, Tell tell) {
    for (std::uint32_t turn = 1 + team.thread_rank(); turn < s.size(); turn += team.size()) {
      tell(rank_after(s.rank(), turn, s.size()));
    }
  }

  // By one thread for each receiver or sender, after the block's barrier.
  template <Team T>
  WEFT_FN void announce(T& team, std::uint32_t receiver, std::uint64_t chunk) const {
    team.store_release(word(layout().pipeline_signals, receiver, chunk, session->rank()), tag(chunk));
  }
  template <Team T>
  WEFT_FN void give_credit(T& team, std::uint32_t sender, std::uint64_t chunk) const {
    team.store_release(word(layout().pipeline_credits, sender, chunk, session->rank()), tag(chunk));
  }

  // By one thread for each sender or receiver, before the block's barrier. False when the call has failed.
  template <Team T>
  WEFT_FN bool await_chunk(T& team, std::uint32_t sender, std::uint64_t chunk) const {
    return await(team, word(layout().pipeline_signals, session->rank(), chunk, sender), sender, chunk);
  }
  template <Team T>
  WEFT_FN bool await_credit(T& team, std::uint32_t receiver, std::uint64_t chunk) const {
    return await(team, word(layout().pipeline_credits, session->rank(), chunk, receiver), receiver, chunk);
  }
  // Waits until the slot of `chunk` is free.
  template <Team T>
  WEFT_FN bool await_slot(T& team, std::uint32_t receiver, std::uint64_t chunk) const {
    return chunk < slots * stride || await_credit(team, receiver, chunk - slots * stride);
  }

 private:
  WEFT_FN std::uint64_t tag(std::uint64_t chunk) const {
    return signal_word(session->epoch, static_cast<std::uint32_t>(chunk));
  }
  template <Team T>
  WEFT_FN bool await(T& team, const std::uint64_t* at, std::uint32_t peer, std::uint64_t chunk) const {
    return await_signal(team, *session, at, tag(chunk), peer);
  }
};

// The way of chunks: direct, each rank relays its own rows; or by a detour, so that all links carry what one rank has
// most of. Others then relay its chunks in turns: a gather's to all (R. A. van de Geijn, "On global combine
// operations", 1994), and a scatter's, summed, to their owner.
struct Route {
  const Session* session;
  bool detour;

  // Between a relay and all others. Chunks that take the same slot have the same relay: so a sender that waits for a
  // slot knows the credit's rank.
  WEFT_FN Flow wide() const {
    if (!detour) return {session, 0, session->layout().pipeline_slots, 1};
    return Flow{session, narrow_slots(), narrow_slots() * relays(), 1};
  }
  // The role of a block. Every relays()-th chunk has the same relay. That distance and the distance of a block's chunks
  // must have no common divisor, or a few blocks would pass on all chunks.
  template <Team T>
  WEFT_FN Flow::Role role_of(T& team) const {
    Flow::Role role = Flow::role_of(team);
    while (detour && divisor(role.blocks, relays()) != 1) --role.blocks;
    if (role.block >= role.blocks) role.sends = role.receives = false;
    return role;
  }

  // Between an owner and each of its relays; only for a detour.
  WEFT_FN Flow narrow() const { return {session, 0, narrow_slots(), relays()}; }

  WEFT_FN std::uint32_t relay_of(std::uint32_t owner, std::uint64_t chunk) const {
    return rank_after(owner, shift(chunk), session->size());
  }
  WEFT_FN std::uint32_t owner_at(std::uint32_t relay, std::uint64_t chunk) const {
    return rank_before(relay, shift(chunk), session->size());
  }

 private:
  WEFT_FN std::uint32_t relays() const { return session->size() - 1; }
  static WEFT_FN std::uint32_t divisor(std::uint32_t a, std::uint32_t b) {
    while (b != 0) {
      const std::uint32_t rest = a % b;
      a = b;
      b = rest;
    }
    return a;
  }
  WEFT_FN std::uint64_t narrow_slots() const { return session->layout().pipeline_slots / session->size(); }
  WEFT_FN std::uint32_t shift(std::uint64_t chunk) const {
    return detour ? 1 + static_cast<std::uint32_t>(chunk % relays()) : 0;
  }
};

}  // namespace weft::detail
