// Copies of messages too large for lines: chunks flow (flow.hpp) from the rank whose rows they are to all others, at
// once or by a detour. A block sends a chunk to all peers, or receives one from all, between two barriers: there are
// fewer of these than by peer, and the wire waits for none.
//
// By a detour a chunk goes to its relay, and the relay, which keeps what it has received in the slot, passes it on.
#pragma once

#include <cstdint>

#include "algorithms/copy_rows.hpp"
#include "algorithms/flow.hpp"
#include "wire/line.hpp"

namespace weft::detail {

template <class Work, bool whole>
struct FlowCopy {
  using Shares = typename Work::Shares;

  template <class Table>
  struct Copy {
    const Session& s;
    const Work& work;
    const Table& table;
    Route route;

    WEFT_FN std::uint64_t chunks_of(std::uint32_t owner) const {
      return route.wide().chunks_of(length<InPacks>(work, table.rows_of(owner)));
    }
    WEFT_FN bool has(std::uint32_t owner, std::uint64_t chunk) const { return chunk < chunks_of(owner); }
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
        if constexpr (Shares::kPadded) clear_pads<whole>(team, s, work, table, {role.block, role.blocks});
      } else if (!receive(team, copy, chunk - role.blocks)) {
        return false;
      }
    }
    return !role.sends || drain(team, copy, role, turns);
  }

 private:
  static constexpr std::uint32_t kBatch = 4;          // peers handled at once
  static constexpr std::uint64_t kApartPerBlock = 2;  // measured: as many chunks as receivers copy for nothing

  // Calls `load(m, tensor, pack of the tensor, pack of the slot)` for this thread's packs of a chunk of each of some
  // messages, of `rows[m]` rows, a few at a time, and `store` with what it gave: loads wait for no store. The first
  // loads do not wait for `ready()` either, which all threads call once, before anything is stored; false, when it is.
  template <std::uint32_t messages, Team T, class Load, class Ready, class Store>
  static WEFT_FN bool each_pack(T& team, const Flow& flow, const Work& work, const std::uint64_t (&rows)[messages],
                                std::uint64_t chunk, Load load, Ready ready, Store store) {
    constexpr std::uint32_t kAtOnce = messages == 1 ? 4 : 2;
    const std::uint64_t first = chunk * flow.chunk_packs();
    std::uint64_t packs[messages] = {}, most = 0;
    WEFT_UNROLL
    for (std::uint32_t m = 0; m < messages; ++m) {
      const std::uint64_t all = length<InPacks>(work, rows[m]);
      if (all > first) packs[m] = all - first < flow.chunk_packs() ? all - first : flow.chunk_packs();
      if (packs[m] > most) most = packs[m];
    }
    bool first_batch = true;
    for (std::uint64_t i = team.thread_rank(); first_batch || i < most; i += kAtOnce * team.size()) {
      Pack payload[kAtOnce][messages] = {};
      const auto each = [&](auto serve) {
        WEFT_UNROLL
        for (std::uint32_t k = 0; k < kAtOnce; ++k) {
          WEFT_UNROLL
          for (std::uint32_t m = 0; m < messages; ++m) {
            const std::uint64_t at = i + k * team.size();
            if (at >= packs[m]) continue;
            std::uint64_t pack = first + at;
            const CopyTensor& tensor = tensor_of(work, rows[m], pack);
            serve(m, tensor, pack, at, payload[k][m]);
          }
        }
      };
      each([&](std::uint32_t m, const CopyTensor& tensor, std::uint64_t pack, std::uint64_t at, Pack& p) {
        p = load(m, tensor, pack, at);
      });
      if (first_batch && !ready()) return false;
      first_batch = false;
      each([&](std::uint32_t m, const CopyTensor& tensor, std::uint64_t pack, std::uint64_t at, const Pack& p) {
        store(m, tensor, pack, at, p);
      });
    }
    return true;
  }
  static WEFT_FN bool always() { return true; }

  // Own rows are copied by receivers, as far as that takes no longer than the first chunks are under way. Of the chunks
  // behind these it is done by who sends them and has loaded them anyway, if all peers get the same.
  template <Team T>
  static WEFT_FN std::uint64_t chunks_apart(T& team, const Work& work) {
    return work.shares.same_for_all() ? kApartPerBlock * team.blocks() : ~std::uint64_t{0};
  }
  template <Team T, class Table>
  static WEFT_FN void copy_own(T& team, const Copy<Table>& copy, const Flow::Role& role) {
    const std::uint32_t self = copy.s.rank();
    const std::uint64_t rows[] = {copy.table.rows_of(self)}, apart = chunks_apart(team, copy.work);
    const std::uint64_t chunks = apart < copy.chunks_of(self) ? apart : copy.chunks_of(self);
    for (std::uint64_t chunk = role.block; chunk < chunks; chunk += role.blocks) {
      each_pack(
          team, copy.route.wide(), copy.work, rows, chunk,
          [&](std::uint32_t, const CopyTensor& t, std::uint64_t pack, std::uint64_t) {
            return outgoing<whole>(copy.work.shares, t, rows[0], self).load(pack);
          },
          always,
          [&](std::uint32_t, const CopyTensor& t, std::uint64_t pack, std::uint64_t, const Pack& payload) {
            incoming<whole>(copy.table, t, rows[0], self).store(pack, payload);
          });
    }
  }

  template <Team T, class Table>
  static WEFT_FN bool to_relay(T& team, const Copy<Table>& copy, std::uint64_t chunk) {
    const std::uint32_t self = copy.s.rank(), relay = copy.route.relay_of(self, chunk);
    if (relay == self || !copy.has(self, chunk)) return true;
    const Flow flow = copy.route.narrow();
    const bool first = team.thread_rank() == 0;
    const std::uint64_t rows[] = {copy.table.rows_of(self)};
    Pack* const to = flow.slot(relay, chunk, self);
    const bool keep = chunk >= chunks_apart(team, copy.work);
    const bool good = each_pack(
        team, flow, copy.work, rows, chunk,
        [&](std::uint32_t, const CopyTensor& t, std::uint64_t pack, std::uint64_t) {
          return outgoing<whole>(copy.work.shares, t, rows[0], relay).load(pack);
        },
        [&] { return team.all(!first || flow.await_slot(team, relay, chunk)); },
        [&](std::uint32_t, const CopyTensor& t, std::uint64_t pack, std::uint64_t i, const Pack& own) {
          team.put(to + i, own);
          if (keep) incoming<whole>(copy.table, t, rows[0], self).store(pack, own);
        });
    if (!good) return false;
    team.sync();
    if (first) flow.announce(team, relay, chunk);
    return true;
  }

  // The chunk of which this rank is the relay: its own, or one that has come for all.
  template <Team T, class Table>
  static WEFT_FN bool to_all(T& team, const Copy<Table>& copy, std::uint64_t chunk) {
    const std::uint32_t self = copy.s.rank(), owner = copy.route.owner_at(self, chunk);
    if (!copy.has(owner, chunk)) return true;
    const Flow from_owner = copy.route.narrow(), flow = copy.route.wide();
    const auto ready = [&] {
      return Flow::each_peer(team, copy.s, [&](std::uint32_t peer) {
        return peer == owner ? from_owner.await_chunk(team, owner, chunk) : flow.await_slot(team, peer, chunk);
      });
    };
    if (copy.work.shares.same_for_all()) {
      if (!put_same(team, copy, owner, chunk, ready)) return false;
    } else if constexpr (Shares::kKnown) {
      if (!ready()) return false;
      put_different(team, copy, chunk);
    }
    team.sync();
    Flow::tell_peers(team, copy.s, [&](std::uint32_t peer) {
      if (peer == owner) {
        from_owner.give_credit(team, owner, chunk);
      } else {
        flow.announce(team, peer, chunk);
      }
    });
    return true;
  }

  // Loaded once, for all peers and for this rank: its own, or what the owner has sent it.
  template <Team T, class Table, class Ready>
  static WEFT_FN bool put_same(T& team, const Copy<Table>& copy, std::uint32_t owner, std::uint64_t chunk,
                               Ready ready) {
    const std::uint32_t self = copy.s.rank(), size = copy.s.size();
    const Flow flow = copy.route.wide();
    const std::uint64_t rows[] = {copy.table.rows_of(owner)};
    const Pack* const passed = owner != self ? copy.route.narrow().slot(self, chunk, owner) : nullptr;
    const std::uint64_t slot = flow.slot_packs(chunk, self);
    const bool keep = passed != nullptr || chunk >= chunks_apart(team, copy.work);
    if (passed != nullptr && !ready()) return false;  // it must have come before it is loaded
    return each_pack(
        team, flow, copy.work, rows, chunk,
        [&](std::uint32_t, const CopyTensor& t, std::uint64_t pack, std::uint64_t i) {
          return passed != nullptr ? team.get(passed + i)
                                   : outgoing<whole>(copy.work.shares, t, rows[0], self).load(pack);
        },
        [&] { return passed != nullptr || ready(); },
        [&](std::uint32_t, const CopyTensor& t, std::uint64_t pack, std::uint64_t i, const Pack& payload) {
          if (keep) incoming<whole>(copy.table, t, rows[0], owner).store(pack, payload);
          for (std::uint32_t turn = 1; turn < size; ++turn) {
            const std::uint32_t peer = rank_after(self, turn, size);
            if (peer != owner) team.put(flow.area(peer) + slot + i, payload);
          }
        });
  }
  template <Team T, class Table>
  static WEFT_FN void put_different(T& team, const Copy<Table>& copy, std::uint64_t chunk) {
    const std::uint32_t self = copy.s.rank(), size = copy.s.size();
    const Flow flow = copy.route.wide();
    for (std::uint32_t turn = 1; turn < size; turn += kBatch) {
      std::uint64_t rows[kBatch] = {};
      std::uint32_t peer[kBatch] = {};
      Pack* to[kBatch] = {};
      WEFT_UNROLL
      for (std::uint32_t k = 0; k < kBatch; ++k) {
        if (turn + k >= size) break;
        peer[k] = rank_after(self, turn + k, size);
        to[k] = flow.slot(peer[k], chunk, self);
        rows[k] = copy.table.rows_of(self);
      }
      each_pack(
          team, flow, copy.work, rows, chunk,
          [&](std::uint32_t k, const CopyTensor& t, std::uint64_t pack, std::uint64_t) {
            return outgoing<whole>(copy.work.shares, t, rows[k], peer[k]).load(pack);
          },
          always,
          [&](std::uint32_t k, const CopyTensor&, std::uint64_t, std::uint64_t i, const Pack& payload) {
            team.put(to[k] + i, payload);
          });
    }
  }

  // A chunk from each peer: of its own rows, or of those that it passes on.
  template <Team T, class Table>
  static WEFT_FN bool receive(T& team, const Copy<Table>& copy, std::uint64_t chunk) {
    const std::uint32_t self = copy.s.rank();
    const Flow flow = copy.route.wide();
    const auto brings = [&](std::uint32_t peer) {
      const std::uint32_t owner = copy.route.owner_at(peer, chunk);
      return owner != self && copy.has(owner, chunk);
    };
    if (!Flow::each_peer(team, copy.s,
                         [&](std::uint32_t peer) { return !brings(peer) || flow.await_chunk(team, peer, chunk); })) {
      return false;
    }
    for (std::uint32_t turn = 1; turn < copy.s.size(); turn += kBatch) {
      std::uint64_t rows[kBatch] = {};
      std::uint32_t owner[kBatch] = {};
      const Pack* from[kBatch] = {};
      WEFT_UNROLL
      for (std::uint32_t k = 0; k < kBatch; ++k) {
        if (turn + k >= copy.s.size()) break;
        const std::uint32_t peer = rank_before(self, turn + k, copy.s.size());
        owner[k] = copy.route.owner_at(peer, chunk);
        if (brings(peer)) rows[k] = copy.table.rows_of(owner[k]);
        from[k] = flow.slot(self, chunk, peer);
      }
      each_pack(
          team, flow, copy.work, rows, chunk,
          [&](std::uint32_t k, const CopyTensor&, std::uint64_t, std::uint64_t i) { return team.get(from[k] + i); },
          always,
          [&](std::uint32_t k, const CopyTensor& t, std::uint64_t pack, std::uint64_t, const Pack& payload) {
            incoming<whole>(copy.table, t, rows[k], owner[k]).store(pack, payload);
          });
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
        if (peer == copy.route.relay_of(self, chunk) && to_relay.is_last_in_slot(chunk, copy.chunks_of(self)) &&
            !to_relay.await_credit(team, peer, chunk)) {
          return false;
        }
        if (peer != owner && flow.is_last_in_slot(chunk, copy.chunks_of(owner)) &&
            !flow.await_credit(team, peer, chunk)) {
          return false;
        }
      }
      return true;
    });
  }
};

}  // namespace weft::detail
