// Copies of large messages into symmetric memory: every rank writes its rows to their final place at each peer, and
// then signals it. No rank copies rows out of slots or waits for credits. Instead a ready flag allows peers to write:
// a rank sends it when it begins its call (as NCCL's symmetric kernels do by a barrier).
//
// Tiles of a message are dealt to as many chunks as there are signals. Each signal serves once in a call, and blocks
// write side by side. By a detour (flow.hpp, Route) a chunk goes to its relay's output, and the relay passes it on from
// there.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/moves/copy_rows.hpp"
#include "protocol/flow.hpp"

namespace weft::detail {

template <class Work, bool aligned16>
struct SymmetricCopy {
  // One block calls it before anything else of the call. It lets peers write to this rank's outputs, if they make this
  // very call and find the same rows. A release, so that earlier uses of the outputs come first.
  template <Team T, class Table>
  static WEFT_FN void announce_ready(T& team, const Session& s, const Table& table) {
    const std::uint64_t word = ready_word(s, table);
    Flow::tell_peers(team, s, [&](std::uint32_t peer) { team.store_release(ready_flag(s, peer, s.rank()), word); });
  }

  template <Team T, class Table>
  static WEFT_FN bool run(T& team, const Session& s, const Work& work, const Table& table, bool detour) {
    Copy<Table> copy{s, work, table, {&s, detour}, 0, team.block_rank() - 1, team.blocks() - 1};
    const std::uint64_t tiles = copy.tiles_of(length<InPacks>(work, table.most_rows()));
    copy.chunks = tiles < s.layout().symmetric_chunks ? tiles : s.layout().symmetric_chunks;
    if constexpr (Work::Partition::kPadded) {
      const auto put = [&](const Rows<true>& pad, std::uint64_t i) {
        team.put(static_cast<Pack*>(const_cast<void*>(pad.find(i))), Pack{});
      };
      clear_pads<true>(team, s, work, table, {copy.block, copy.blocks}, put);
    }
    return send(team, copy) && (!detour || pass_on(team, copy)) && arrive(team, copy);
  }

 private:
  template <class Table>
  static constexpr bool kHasPlaces = HasPlaces<Table, true>;

  template <class Table>
  struct Copy {
    const Session& s;
    const Work& work;
    const Table& table;
    Route route;
    std::uint64_t chunks;  // of the longest message
    std::uint64_t block, blocks;

    WEFT_FN std::uint64_t tile_packs() const { return std::uint64_t{1} << work.outputs.tile_shift; }
    WEFT_FN std::uint64_t tiles_of(std::uint64_t packs) const {
      return (packs + tile_packs() - 1) >> work.outputs.tile_shift;
    }
    // Chunks that are not empty.
    WEFT_FN std::uint64_t chunks_of(std::uint32_t owner) const {
      const std::uint64_t tiles = tiles_of(length<InPacks>(work, table.rows_of(owner)));
      return tiles < chunks ? tiles : chunks;
    }
    // The offset in every rank's part at which a pack of `owner`'s rows belongs.
    WEFT_FN std::ptrdiff_t offset_of(const CopyTensor& t, std::uint64_t rows, std::uint32_t owner,
                                     std::uint64_t pack) const {
      const void* const own = incoming<true>(table, t, rows, owner).find(pack);
      return static_cast<const std::byte*>(own) - work.outputs.part_of(*s.call, s.rank());
    }
    // The own rows lie at their final place already. Worth the check: with few blocks, a processor's stores are the
    // bottleneck.
    WEFT_FN bool is_in_place() const {
      bool all = true;
      for (std::uint32_t t = 0; t < work.count(); ++t) {
        const auto* const own = static_cast<const std::byte*>(begin_of_own(work.tensor[t]));
        all = all && own == work.tensor[t].input && work.tensor[t].input_stride == work.tensor[t].output_stride;
      }
      return all;
    }
    WEFT_FN const void* begin_of_own(const CopyTensor& t) const {
      if constexpr (kHasPlaces<Table>) {
        return table.template place_of<true>(t, 1, s.rank()).find(0);
      } else {
        return static_cast<const std::byte*>(t.output) + table.output_row(s.rank()) * t.output_stride;
      }
    }
    WEFT_FN Pack* at(std::uint32_t rank, std::ptrdiff_t offset) const {
      return reinterpret_cast<Pack*>(work.outputs.part_of(*s.call, rank) + offset);
    }
  };

  // The epoch, and a hash of the call and of all ranks' rows: a rank with other counts would write past its peers'
  // outputs.
  template <class Table>
  static WEFT_FN std::uint64_t ready_word(const Session& s, const Table& table) {
    return static_cast<std::uint64_t>(s.epoch) << 32 | (s.call->fingerprint ^ table.hash(s.size()));
  }
  static WEFT_FN std::uint64_t* ready_flag(const Session& s, std::uint32_t owner, std::uint32_t from) {
    return reinterpret_cast<std::uint64_t*>(region_of(*s.call, owner) + s.layout().ready_flags) + from;
  }
  // By all threads of a block that has rows to send: no rank ends the call without these rows, so no word is a later
  // call's. A rank that makes another call, or finds other counts, tells no peer that it is ready for this one; the
  // headers report the reason.
  template <Team T, class Table>
  static WEFT_FN bool all_ready(T& team, const Session& s, const Table& table) {
    const std::uint64_t word = ready_word(s, table);
    return Flow::each_peer(team, s, [&](std::uint32_t peer) {
      const auto ready = [&] { return team.load_acquire(ready_flag(s, s.rank(), peer)) == word; };
      return wait(team, s, {.phase = 1}, ready, [&] { return peer; });
    });
  }

  static WEFT_FN std::uint64_t* signal_at(const Session& s, std::uint32_t owner, std::uint32_t hop, std::uint64_t chunk,
                                          std::uint32_t from) {
    return reinterpret_cast<std::uint64_t*>(region_of(*s.call, owner) + s.layout().symmetric_signals) +
           (hop * s.layout().symmetric_chunks + chunk) * s.size() + from;
  }
  static WEFT_FN std::uint64_t tag(const Session& s, std::uint64_t chunk) {
    return signal_word(s.epoch, static_cast<std::uint32_t>(chunk));
  }
  template <Team T>
  static WEFT_FN void announce(T& team, const Session& s, std::uint32_t hop, std::uint64_t chunk, std::uint32_t peer) {
    team.store_release(signal_at(s, peer, hop, chunk, s.rank()), tag(s, chunk));
  }
  template <Team T>
  static WEFT_FN bool await(T& team, const Session& s, std::uint32_t hop, std::uint64_t chunk, std::uint32_t peer) {
    return await_signal(team, s, signal_at(s, s.rank(), hop, chunk, peer), tag(s, chunk), peer);
  }

  // Sends this block's chunks of the own rows: to all peers, or to the relay of each chunk.
  template <Team T, class Table>
  static WEFT_FN bool send(T& team, const Copy<Table>& copy) {
    const Session& s = copy.s;
    const std::uint32_t self = s.rank(), peers = s.size() - 1;
    const std::uint64_t chunks = copy.chunks_of(self);
    for (std::uint64_t chunk = copy.block; chunk < chunks; chunk += copy.blocks) {
      const auto ready = [&] { return chunk != copy.block || all_ready(team, s, copy.table); };
      if (!put(team, copy, chunk, ready)) return false;
      if (!copy.route.detour) continue;
      team.sync();  // the relay waits for this chunk, and not for all
      if (team.thread_rank() == 0) announce(team, s, 0, chunk, copy.route.relay_of(self, chunk));
    }
    if (copy.route.detour || copy.block >= chunks) return true;
    team.sync();  // all have put
    const std::uint64_t turns = (chunks - copy.block + copy.blocks - 1) / copy.blocks;
    for (std::uint64_t i = team.thread_rank(); i < turns * peers; i += team.size()) {
      const auto turn = static_cast<std::uint32_t>(i % peers);
      announce(team, s, 0, copy.block + i / peers * copy.blocks, rank_after(self, turn + 1, s.size()));
    }
    return true;
  }
  // For this thread's packs of a chunk of a message of `rows` rows, a few at a time: calls `load(pack)`, then
  // `store(pack, its result)`. Loads wait for no store, and the first loads do not wait for `ready()`. All threads call
  // it once, before any store; false if it returns false.
  template <Team T, class Table, class Load, class Ready, class Store>
  static WEFT_FN bool each_pack_of_tiles(T& team, const Copy<Table>& copy, std::uint64_t rows, std::uint64_t chunk,
                                         Load load, Ready ready, Store store) {
    constexpr std::uint32_t kAtOnce = 4;
    const std::uint32_t shift = copy.work.outputs.tile_shift;
    const std::uint64_t packs = length<InPacks>(copy.work, rows), tiles = copy.tiles_of(packs);
    const std::uint64_t all = chunk < tiles ? (tiles - chunk + copy.chunks - 1) / copy.chunks << shift : 0;
    bool first_batch = true;
    for (std::uint64_t i = team.thread_rank(); first_batch || i < all; i += kAtOnce * team.size()) {
      Pack payload[kAtOnce] = {};
      const auto each = [&](auto serve) {
        WEFT_UNROLL
        for (std::uint32_t k = 0; k < kAtOnce; ++k) {
          const std::uint64_t at = i + k * team.size();
          const std::uint64_t pack = ((chunk + (at >> shift) * copy.chunks) << shift) + (at & (copy.tile_packs() - 1));
          if (at < all && pack < packs) serve(pack, payload[k]);
        }
      };
      each([&](std::uint64_t pack, Pack& p) { p = load(pack); });
      if (first_batch && !ready()) return false;
      first_batch = false;
      each(store);
    }
    return true;
  }

  template <Team T, class Table, class Ready>
  static WEFT_FN bool put(T& team, const Copy<Table>& copy, std::uint64_t chunk, Ready ready) {
    const std::uint32_t self = copy.s.rank(), size = copy.s.size();
    if (copy.work.partition.same_for_all()) {
      const bool keep = !copy.is_in_place();
      return put_rows(team, copy, chunk, self, ready, [&](std::ptrdiff_t offset, const Pack& payload) {
        if (copy.route.detour) {
          team.put(copy.at(copy.route.relay_of(self, chunk), offset), payload);
        } else {
          for (std::uint32_t turn = 1; turn < size; ++turn) {
            team.put(copy.at(rank_after(self, turn, size), offset), payload);
          }
        }
        if (keep) team.put(copy.at(self, offset), payload);
      });
    }
    for (std::uint32_t turn = 0; turn < size; ++turn) {
      const std::uint32_t peer = rank_after(self, turn, size);
      const auto put_pack = [&](std::ptrdiff_t offset, const Pack& payload) {
        team.put(copy.at(peer, offset), payload);
      };
      if (!put_rows(
              team, copy, chunk, peer, [&] { return turn != 0 || ready(); }, put_pack))
        return false;
    }
    return true;
  }
  // Calls `put_pack(offset, payload)` for this thread's packs of the rows for `receiver`.
  template <Team T, class Table, class Ready, class PutPack>
  static WEFT_FN bool put_rows(T& team, const Copy<Table>& copy, std::uint64_t chunk, std::uint32_t receiver,
                               Ready ready, PutPack put_pack) {
    const CopyTensor& t = copy.work.tensor[0];
    const std::uint32_t self = copy.s.rank();
    const std::uint64_t rows = copy.table.rows_of(self);
    if (!kHasPlaces<Table> && aligned16 && copy.work.count() == 1 && t.input_stride == t.row_bytes &&
        t.output_stride == t.row_bytes) {
      // Nothing but a base and a number: few blocks have no time for more.
      const void* const first = outgoing<true>(copy.table, t, rows, receiver).find(0);
      const std::ptrdiff_t base = copy.offset_of(t, rows, self, 0);
      return each_pack_of_tiles(
          team, copy, rows, chunk,
          [&](std::uint64_t pack) {
            return Rows<true>::load_found(static_cast<const std::byte*>(first) + pack * sizeof(Pack));
          },
          ready,
          [&](std::uint64_t pack, const Pack& payload) {
            put_pack(base + static_cast<std::ptrdiff_t>(pack * sizeof(Pack)), payload);
          });
    }
    return each_pack_of_tiles(
        team, copy, rows, chunk,
        [&](std::uint64_t pack) {
          const CopyTensor& tensor = tensor_of(copy.work, rows, pack);
          return changed(copy.table, outgoing<aligned16>(copy.table, tensor, rows, receiver).load(pack));
        },
        ready,
        [&](std::uint64_t pack, const Pack& payload) {
          const CopyTensor& tensor = tensor_of(copy.work, rows, pack);
          if constexpr (kHasPlaces<Table>) {
            if (incoming<true>(copy.table, tensor, rows, self).find(pack) == nullptr) return;
          }
          put_pack(copy.offset_of(tensor, rows, self, pack), payload);
        });
  }

  // The sender changes its rows, since peers cannot change them on arrival.
  template <class Table>
  static WEFT_FN Pack changed(const Table& table, const Pack& payload) {
    if constexpr (kHasPlaces<Table>) {
      return table.changed(payload);
    } else {
      return payload;
    }
  }

  // Passes on the chunks that this rank relays. Of N − 1 neighbouring chunks it relays one of each owner. Their owner
  // has all peers' ready flags, or it would not have sent them.
  template <Team T, class Table>
  static WEFT_FN bool pass_on(T& team, const Copy<Table>& copy) {
    const Session& s = copy.s;
    const std::uint32_t self = s.rank(), relays = s.size() - 1;
    for (std::uint64_t first = copy.block * relays; first < copy.chunks; first += copy.blocks * relays) {
      for (std::uint64_t chunk = first; chunk < first + relays; ++chunk) {
        const std::uint32_t owner = copy.route.owner_at(self, chunk);
        if (chunk >= copy.chunks_of(owner)) continue;
        if (!team.all(team.thread_rank() != 0 || await(team, s, 0, chunk, owner))) return false;
        const std::uint64_t rows = copy.table.rows_of(owner);
        const auto offset = [&](std::uint64_t pack) {
          const CopyTensor& tensor = tensor_of(copy.work, rows, pack);
          return copy.offset_of(tensor, rows, owner, pack);
        };
        each_pack_of_tiles(
            team, copy, rows, chunk, [&](std::uint64_t pack) { return team.get(copy.at(self, offset(pack))); },
            [] { return true; },
            [&](std::uint64_t pack, const Pack& payload) {
              const std::ptrdiff_t place = offset(pack);
              for (std::uint32_t turn = 1; turn < s.size(); ++turn) {
                const std::uint32_t peer = rank_after(self, turn, s.size());
                if (peer != owner) team.put(copy.at(peer, place), payload);
              }
            });
        team.sync();  // all have passed on
        Flow::tell_peers(team, s, [&](std::uint32_t peer) {
          if (peer != owner) announce(team, s, 1, chunk, peer);
        });
      }
    }
    return true;
  }

  // Waits for all peers' chunks: of their own rows, or of rows that they pass on.
  template <Team T, class Table>
  static WEFT_FN bool arrive(T& team, const Copy<Table>& copy) {
    const Session& s = copy.s;
    const std::uint32_t self = s.rank(), peers = s.size() - 1;
    if (copy.block >= copy.chunks) return true;
    const std::uint64_t turns = (copy.chunks - copy.block + copy.blocks - 1) / copy.blocks;
    bool good = true;
    for (std::uint64_t i = team.thread_rank(); good && i < turns * peers; i += team.size()) {
      const std::uint64_t chunk = copy.block + i / peers * copy.blocks;
      const std::uint32_t peer = rank_before(self, 1 + static_cast<std::uint32_t>(i % peers), s.size());
      const std::uint32_t owner = copy.route.owner_at(peer, chunk);
      if (owner == self || chunk >= copy.chunks_of(owner)) continue;
      good = await(team, s, copy.route.detour ? 1 : 0, chunk, peer);
    }
    return team.all(good);
  }
};

}  // namespace weft::detail
