// Copies of messages too large for lines. Chunks flow (flow.hpp) from the rank that owns the rows to all others,
// directly or by a detour. A block sends a chunk to all peers, or receives one from all, between two barriers: fewer
// barriers than one per peer, and the wire waits for none.
//
// By a detour a chunk goes to its relay. The relay passes it on, and keeps the received chunk in the slot.
#pragma once

#include <cstdint>

#include "ops/moves/copy_rows.hpp"
#include "protocol/each_pack.hpp"
#include "protocol/flow.hpp"
#include "wire/line.hpp"

namespace weft::detail {

template <class Work, bool aligned16>
struct FlowCopy {
  using Partition = typename Work::Partition;

  // A chunk of one message as it lies in the caller's tensors: rows for rank `rank`, or rows of that rank.
  template <class Place>
  struct Part {
    std::uint64_t rows, first;  // of the message; the chunk's first pack
    std::uint32_t rank;
    Place only;  // of the only tensor
  };
  using Out = Part<Rows<aligned16>>;

  template <class Table>
  struct Copy {
    using In = Part<Incoming<aligned16, Table>>;
    const Session& s;
    const Work& work;
    const Table& table;
    Route route;

    // The length of the message from its owner to a receiver.
    WEFT_FN std::uint64_t packs_of(std::uint32_t owner, std::uint32_t receiver) const {
      return length<InPacks>(work, rows_between(table, owner, receiver));
    }
    WEFT_FN std::uint64_t chunks_of(std::uint32_t owner, std::uint32_t receiver) const {
      return route.wide().chunks_of(packs_of(owner, receiver));
    }
    WEFT_FN bool has(std::uint32_t owner, std::uint32_t receiver, std::uint64_t chunk) const {
      return chunk < chunks_of(owner, receiver);
    }
    // Usually all receivers have a chunk or none.
    WEFT_FN bool has_any(std::uint32_t owner, std::uint64_t chunk) const {
      return ForReceivers<Table> || has(owner, s.rank(), chunk);
    }
    WEFT_FN bool is_among(std::uint32_t owner, std::uint32_t receiver, std::uint64_t chunk) const {
      return !ForReceivers<Table> || has(owner, receiver, chunk);
    }

    // With one tensor the values that are equal for all packs are computed once.
    WEFT_FN Out outgoing(std::uint64_t chunk, std::uint32_t receiver) const {
      Out part{rows_between(table, s.rank(), receiver), chunk * s.layout().pipeline_packs, receiver, {}};
      if constexpr (Work::kOneTensor) part.only = rows_out(work.tensor[0], part);
      return part;
    }
    WEFT_FN In incoming(std::uint64_t chunk, std::uint32_t owner) const {
      In part{rows_between(table, owner, s.rank()), chunk * s.layout().pipeline_packs, owner, {}};
      if constexpr (Work::kOneTensor) part.only = rows_in(work.tensor[0], part);
      return part;
    }
    WEFT_FN Pack load(const Out& part, std::uint32_t i) const {
      if constexpr (Work::kOneTensor) return part.only.get(part.first + i);
      std::uint64_t pack = part.first + i;
      const CopyTensor& tensor = tensor_of(work, part.rows, pack);
      return rows_out(tensor, part).get(pack);
    }
    WEFT_FN void store(const In& part, std::uint32_t i, const Pack& payload) const {
      if constexpr (Work::kOneTensor) return part.only.put(part.first + i, payload);
      std::uint64_t pack = part.first + i;
      const CopyTensor& tensor = tensor_of(work, part.rows, pack);
      rows_in(tensor, part).put(pack, payload);
    }

   private:
    WEFT_FN Rows<aligned16> rows_out(const CopyTensor& tensor, const Out& part) const {
      return detail::outgoing<aligned16>(table, tensor, part.rows, part.rank);
    }
    WEFT_FN Incoming<aligned16, Table> rows_in(const CopyTensor& tensor, const In& part) const {
      return detail::incoming<aligned16>(table, tensor, part.rows, part.rank);
    }
  };

  // Turn k of a block is chunk first + k · step of every message.
  template <Team T, class Table>
  static WEFT_FN bool run(T& team, const Session& s, const Work& work, const Table& table, bool detour) {
    const Copy<Table> copy{s, work, table, {&s, detour}};
    const Flow::Role role = copy.route.role_of(team);
    const std::uint64_t chunks = copy.route.wide().chunks_of(length<InPacks>(work, table.most_rows()));
    const std::uint64_t turns = role.block < chunks ? (chunks - role.block + role.blocks - 1) / role.blocks : 0;
    for (std::uint64_t turn = 0; turn < turns + 1; ++turn) {
      const std::uint64_t chunk = role.block + turn * role.blocks;
      if (role.sends && turn < turns && !(to_relay(team, copy, chunk) && to_all(team, copy, chunk))) return false;
      if (!role.receives) continue;
      if (turn == 0) {  // the first chunks are on their way
        copy_own(team, copy, role);
        if constexpr (Partition::kPadded) clear_pads<aligned16>(team, s, work, table, {role.block, role.blocks});
      } else if (!receive(team, copy, chunk - role.blocks)) {
        return false;
      }
    }
    return !role.sends || drain(team, copy, role, turns);
  }

 private:
  static constexpr std::uint32_t kBatch = 4;                // peers handled at once
  static constexpr std::uint32_t kBatchesAtOnce = 2;        // … and packs of each
  static constexpr std::uint32_t kNear = kInlineRanks - 1;  // peers whose slots are computed once
  static constexpr std::uint64_t kApartPerBlock = 2;        // measured: receivers copy this many chunks at no cost

  // Receivers copy own rows while the first chunks are under way. If all peers get the same rows, senders copy the
  // later chunks, because they have loaded them anyway.
  template <Team T>
  static WEFT_FN std::uint64_t chunks_apart(T& team, const Work& work) {
    return work.partition.same_for_all() ? kApartPerBlock * team.blocks() / work.partition.warp_groups
                                         : ~std::uint64_t{0};
  }
  template <Team T, class Table>
  static WEFT_FN void copy_own(T& team, const Copy<Table>& copy, const Flow::Role& role) {
    const std::uint32_t self = copy.s.rank();
    const std::uint64_t all = copy.chunks_of(self, self), apart = chunks_apart(team, copy.work);
    for (std::uint64_t chunk = role.block; chunk < (apart < all ? apart : all); chunk += role.blocks) {
      const std::uint32_t packs[] = {copy.route.wide().packs_in(chunk, copy.packs_of(self, self))};
      const auto from = copy.outgoing(chunk, self);
      const auto to = copy.incoming(chunk, self);
      each_pack<kPacksAtOnce>(
          team, packs, [&](std::uint32_t, std::uint32_t i, Pack& p) { p = copy.load(from, i); }, always,
          [&](std::uint32_t, std::uint32_t i, const Pack& p) { copy.store(to, i, p); });
    }
  }

  template <Team T, class Table>
  static WEFT_FN bool to_relay(T& team, const Copy<Table>& copy, std::uint64_t chunk) {
    const std::uint32_t self = copy.s.rank(), relay = copy.route.relay_of(self, chunk);
    if (relay == self || !copy.has(self, relay, chunk)) return true;
    const Flow flow = copy.route.narrow();
    const bool first = team.thread_rank() == 0;
    const std::uint32_t packs[] = {flow.packs_in(chunk, copy.packs_of(self, relay))};
    const auto own = copy.outgoing(chunk, relay);
    const auto kept = copy.incoming(chunk, self);
    Pack* const to = flow.slot(relay, chunk, self);
    const bool keep = chunk >= chunks_apart(team, copy.work);
    const bool good = each_pack<kPacksAtOnce>(
        team, packs, [&](std::uint32_t, std::uint32_t i, Pack& p) { p = copy.load(own, i); },
        [&] { return team.all(!first || flow.await_slot(team, relay, chunk)); },
        [&](std::uint32_t, std::uint32_t i, const Pack& p) {
          team.put(to + i, p);
          if (keep) copy.store(kept, i, p);
        });
    if (!good) return false;
    team.sync();
    if (first) flow.announce(team, relay, chunk);
    return true;
  }

  // Sends the chunk that this rank relays: its own, or one that has come for all.
  template <Team T, class Table>
  static WEFT_FN bool to_all(T& team, const Copy<Table>& copy, std::uint64_t chunk) {
    const std::uint32_t self = copy.s.rank(), owner = copy.route.owner_at(self, chunk);
    if (!copy.has_any(owner, chunk)) return true;
    const Flow from_owner = copy.route.narrow(), flow = copy.route.wide();
    const auto ready = [&] {
      return Flow::each_peer(team, copy.s, [&](std::uint32_t peer) {
        return peer == owner ? from_owner.await_chunk(team, owner, chunk)
                             : !copy.is_among(owner, peer, chunk) || flow.await_slot(team, peer, chunk);
      });
    };
    if (copy.work.partition.same_for_all()) {
      if (!put_same(team, copy, owner, chunk, ready)) return false;
    } else if constexpr (Partition::kKnown || ForReceivers<Table>) {
      if (!ready()) return false;
      put_different(team, copy, chunk);
    }
    team.sync();
    Flow::tell_peers(team, copy.s, [&](std::uint32_t peer) {
      if (peer == owner) {
        from_owner.give_credit(team, owner, chunk);
      } else if (copy.is_among(owner, peer, chunk)) {
        flow.announce(team, peer, chunk);
      }
    });
    return true;
  }

  // Loads a chunk once, for all peers and for this rank: its own, or one that the owner has sent it.
  template <Team T, class Table, class Ready>
  static WEFT_FN bool put_same(T& team, const Copy<Table>& copy, std::uint32_t owner, std::uint64_t chunk,
                               Ready ready) {
    const std::uint32_t self = copy.s.rank(), size = copy.s.size();
    const Flow flow = copy.route.wide();
    const std::uint32_t packs[] = {flow.packs_in(chunk, copy.packs_of(owner, self))};
    const Pack* const passed = owner != self ? copy.route.narrow().slot(self, chunk, owner) : nullptr;
    const auto own = copy.outgoing(chunk, self);
    const auto kept = copy.incoming(chunk, owner);
    const bool keep = passed != nullptr || chunk >= chunks_apart(team, copy.work);
    Pack* near[kNear] = {};
    WEFT_UNROLL
    for (std::uint32_t k = 0; k < kNear; ++k) {
      if (1 + k < size) near[k] = flow.slot(rank_after(self, 1 + k, size), chunk, self);
    }
    if (passed != nullptr && !ready()) return false;  // it must have come before it is loaded
    return each_pack<kPacksAtOnce>(
        team, packs,
        [&](std::uint32_t, std::uint32_t i, Pack& p) {
          p = passed != nullptr ? team.get(passed + i) : copy.load(own, i);
        },
        [&] { return passed != nullptr || ready(); },
        [&](std::uint32_t, std::uint32_t i, const Pack& p) {
          if (keep) copy.store(kept, i, p);
          WEFT_UNROLL
          for (std::uint32_t k = 0; k < kNear; ++k) {
            if (1 + k >= size) break;
            if (rank_after(self, 1 + k, size) != owner) team.put(near[k] + i, p);
          }
          for (std::uint32_t turn = 1 + kNear; turn < size; ++turn) {
            const std::uint32_t peer = rank_after(self, turn, size);
            if (peer != owner) team.put(flow.slot(peer, chunk, self) + i, p);
          }
        });
  }
  template <Team T, class Table>
  static WEFT_FN void put_different(T& team, const Copy<Table>& copy, std::uint64_t chunk) {
    const std::uint32_t self = copy.s.rank(), size = copy.s.size();
    const Flow flow = copy.route.wide();
    for (std::uint32_t turn = 1; turn < size; turn += kBatch) {
      std::uint32_t packs[kBatch] = {};
      Out from[kBatch] = {};
      Pack* to[kBatch] = {};
      WEFT_UNROLL
      for (std::uint32_t k = 0; k < kBatch; ++k) {
        if (turn + k >= size) break;
        const std::uint32_t peer = rank_after(self, turn + k, size);
        packs[k] = flow.packs_in(chunk, copy.packs_of(self, peer));
        from[k] = copy.outgoing(chunk, peer);
        to[k] = flow.slot(peer, chunk, self);
      }
      each_pack<kBatchesAtOnce>(
          team, packs, [&](std::uint32_t k, std::uint32_t i, Pack& p) { p = copy.load(from[k], i); }, always,
          [&](std::uint32_t k, std::uint32_t i, const Pack& p) { team.put(to[k] + i, p); });
    }
  }

  // Receives a chunk from each peer: of its own rows, or of rows that it passes on.
  template <Team T, class Table>
  static WEFT_FN bool receive(T& team, const Copy<Table>& copy, std::uint64_t chunk) {
    const std::uint32_t self = copy.s.rank();
    const Flow flow = copy.route.wide();
    const auto brings = [&](std::uint32_t peer) {
      const std::uint32_t owner = copy.route.owner_at(peer, chunk);
      return owner != self && copy.has(owner, self, chunk);
    };
    if (!Flow::each_peer(team, copy.s,
                         [&](std::uint32_t peer) { return !brings(peer) || flow.await_chunk(team, peer, chunk); })) {
      return false;
    }
    for (std::uint32_t turn = 1; turn < copy.s.size(); turn += kBatch) {
      std::uint32_t packs[kBatch] = {};
      typename Copy<Table>::In to[kBatch] = {};
      const Pack* from[kBatch] = {};
      WEFT_UNROLL
      for (std::uint32_t k = 0; k < kBatch; ++k) {
        if (turn + k >= copy.s.size()) break;
        const std::uint32_t peer = rank_before(self, turn + k, copy.s.size());
        const std::uint32_t owner = copy.route.owner_at(peer, chunk);
        if (brings(peer)) packs[k] = flow.packs_in(chunk, copy.packs_of(owner, self));
        to[k] = copy.incoming(chunk, owner);
        from[k] = flow.slot(self, chunk, peer);
      }
      each_pack<kBatchesAtOnce>(
          team, packs, [&](std::uint32_t k, std::uint32_t i, Pack& p) { p = team.get(from[k] + i); }, always,
          [&](std::uint32_t k, std::uint32_t i, const Pack& p) { copy.store(to[k], i, p); });
    }
    team.sync();
    Flow::tell_peers(team, copy.s, [&](std::uint32_t peer) {
      if (brings(peer)) flow.give_credit(team, peer, chunk);
    });
    return true;
  }

  // Waits for the credits that no later chunk has waited for.
  template <Team T, class Table>
  static WEFT_FN bool drain(T& team, const Copy<Table>& copy, const Flow::Role& role, std::uint64_t turns) {
    const std::uint32_t self = copy.s.rank();
    const Flow to_relay = copy.route.narrow(), flow = copy.route.wide();
    return Flow::each_peer(team, copy.s, [&](std::uint32_t peer) {
      for (std::uint64_t turn = 0; turn < turns; ++turn) {
        const std::uint64_t chunk = role.block + turn * role.blocks;
        const std::uint32_t owner = copy.route.owner_at(self, chunk);
        if (peer == copy.route.relay_of(self, chunk) && to_relay.is_last_in_slot(chunk, copy.chunks_of(self, peer)) &&
            !to_relay.await_credit(team, peer, chunk)) {
          return false;
        }
        if (peer != owner && flow.is_last_in_slot(chunk, copy.chunks_of(owner, peer)) &&
            !flow.await_credit(team, peer, chunk)) {
          return false;
        }
      }
      return true;
    });
  }
};

}  // namespace weft::detail
