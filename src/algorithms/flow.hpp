// Chunks that flow through a fixed number of slots, announced by signals and paid for by credits, for messages too
// large for slots of their own (wire/signal.hpp).
//
// A chunk is served by one block on either side; which one is each side's own affair. Its slot is free once the reader
// has returned the credit of the chunk that lay there before, and a call ends only when all credits of its chunks are
// back: so every call finds all slots that it writes to free.
#pragma once

#include <cstdint>

#include "core/session.hpp"
#include "wire/signal.hpp"

namespace weft::detail {

struct Flow {
  const Session* session;

  WEFT_FN const RegionLayout& layout() const { return session->layout(); }
  WEFT_FN std::uint64_t chunk_packs() const { return layout().bulk_packs; }
  WEFT_FN std::uint64_t slots() const { return layout().bulk_slots; }
  WEFT_FN std::uint64_t chunks_of(std::uint64_t packs) const { return (packs + chunk_packs() - 1) / chunk_packs(); }

  // What a data block does: half of them send, and the others receive, so that the wire is never idle while a block
  // waits for its signal or copies; one by itself does both, in turns. Chunks are dealt to the `blocks` blocks with the
  // same role.
  struct Role {
    bool sends, receives;
    std::uint32_t block, blocks;
  };
  template <Team T>
  static WEFT_FN Role role_of(T& team) {
    const std::uint32_t block = team.block_rank() - 1, blocks = team.blocks() - 1, senders = (blocks + 1) / 2;
    if (blocks == 1) return {.sends = true, .receives = true, .block = 0, .blocks = 1};
    if (block < senders) return {.sends = true, .receives = false, .block = block, .blocks = senders};
    return {.sends = false, .receives = true, .block = block - senders, .blocks = blocks - senders};
  }

  WEFT_FN Pack* slot(std::uint32_t owner, std::uint64_t chunk, std::uint32_t sender) const {
    auto* const area = reinterpret_cast<Pack*>(region_of(*session->call, owner) + layout().bulk_scatter);
    return area + (chunk % slots() * session->size() + sender) * chunk_packs();
  }
  WEFT_FN std::uint64_t* word(std::uint64_t area, std::uint32_t owner, std::uint64_t chunk, std::uint32_t from) const {
    auto* const words = reinterpret_cast<std::uint64_t*>(region_of(*session->call, owner) + area);
    return words + (chunk % slots() * session->size() + from);
  }

  // By one thread each, after the block's barrier.
  template <Team T>
  WEFT_FN void announce(T& team, std::uint32_t receiver, std::uint64_t chunk) const {
    team.store_release(word(layout().bulk_signals, receiver, chunk, session->rank()), tag(chunk));
  }
  template <Team T>
  WEFT_FN void give_credit(T& team, std::uint32_t sender, std::uint64_t chunk) const {
    team.store_release(word(layout().bulk_credits, sender, chunk, session->rank()), tag(chunk));
  }

  // By one thread each, before the block's barrier. False when the call has failed.
  template <Team T>
  WEFT_FN bool await_chunk(T& team, std::uint32_t sender, std::uint64_t chunk) const {
    return await(team, word(layout().bulk_signals, session->rank(), chunk, sender), sender, chunk);
  }
  template <Team T>
  WEFT_FN bool await_credit(T& team, std::uint32_t receiver, std::uint64_t chunk) const {
    return await(team, word(layout().bulk_credits, session->rank(), chunk, receiver), receiver, chunk);
  }
  // That the slot of `chunk` is free.
  template <Team T>
  WEFT_FN bool await_slot(T& team, std::uint32_t receiver, std::uint64_t chunk) const {
    return chunk < slots() || await_credit(team, receiver, chunk - slots());
  }

 private:
  WEFT_FN std::uint64_t tag(std::uint64_t chunk) const {
    return signal_word(session->epoch, static_cast<std::uint32_t>(chunk));
  }
  template <Team T>
  WEFT_FN bool await(T& team, const std::uint64_t* at, std::uint32_t peer, std::uint64_t chunk) const {
    const std::uint64_t wanted = tag(chunk);
    return wait(
        team, *session, {.phase = 1}, [&] { return signal_reached(team.load_acquire(at), wanted); },
        [&] { return peer; });
  }
};

}  // namespace weft::detail
