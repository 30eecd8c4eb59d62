// Reduce-scatters of shards too large for a slot. Chunks flow (flow.hpp) from all ranks to the rows' owner, which sums
// them. A block sends a chunk to each peer, or sums one of all, between two barriers, as copies do (flow_copy.hpp).
//
// By a detour a chunk goes from all to its relay, and the relay passes the sums on to their owner.
#pragma once

#include <cstdint>

#include "ops/all_reduce/all_reduce.hpp"
#include "ops/moves/scatter_work.hpp"
#include "protocol/each_pack.hpp"
#include "protocol/flow.hpp"

namespace weft::detail {

// `R`: the reduction of packs without a wire format.
template <class Work, class R, std::uint32_t known_size, bool aligned16>
struct FlowReduce : AllReduceInstance<R, known_size, aligned16> {
  using Instance = AllReduceInstance<R, known_size, aligned16>;
  using Instance::kBatch;
  using Instance::kSpecialized;

  // Turn k of a block is chunk first + k · step of every shard.
  template <Team T, class Table>
  static WEFT_FN bool run(T& team, const Session& s, const Work& work, const Table& table, bool detour) {
    const Scatter<Table> scatter{s, work, table, {&s, detour}};
    const Flow::Role role = scatter.route.role_of(team);
    const std::uint64_t chunks = scatter.route.wide().chunks_of(work.units(table.most_rows()));
    for (std::uint64_t chunk = role.block; chunk < chunks + role.blocks; chunk += role.blocks) {
      if (role.sends && chunk < chunks && !send(team, scatter, chunk)) return false;
      if (!role.receives || chunk < role.block + role.blocks) continue;
      if (!reduce(team, scatter, chunk - role.blocks) || !take(team, scatter, chunk - role.blocks)) return false;
    }
    return drain(team, scatter, chunks, role);
  }

 private:
  // Packs of each rank that a thread has under way: more take registers, fewer leave it waiting for loads.
  template <Team T>
  static constexpr std::uint32_t kAtOnce = kSpecialized&& T::kPacksAhead > 1 && kBatch <= 4 ? 8 / kBatch : 1;
  static constexpr std::uint32_t kOthers = kSpecialized ? kBatch - 1 : kBatch;  // peers handled at once

  template <class Table>
  struct Scatter {
    const Session& s;
    const Work& work;
    const Table& table;
    Route route;

    WEFT_FN std::uint64_t chunks_of(std::uint32_t owner) const {
      return route.wide().chunks_of(work.units(table.rows_of(owner)));
    }
    WEFT_FN bool has(std::uint32_t owner, std::uint64_t chunk) const { return chunk < chunks_of(owner); }
    WEFT_FN Rows<aligned16> part_of(std::uint32_t owner) const {
      return work.template part_of<aligned16>(table, owner);
    }
    WEFT_FN Rows<aligned16> result() const { return work.template result<aligned16>(table, s.rank()); }
  };

  // Sends a chunk to each peer: of the rows that the peer reduces.
  template <Team T, class Table>
  static WEFT_FN bool send(T& team, const Scatter<Table>& scatter, std::uint64_t chunk) {
    const Session& s = scatter.s;
    const Flow flow = scatter.route.wide();
    const auto takes = [&](std::uint32_t peer) { return scatter.has(scatter.route.owner_at(peer, chunk), chunk); };
    const auto ready = [&] {
      return Flow::each_peer(team, s,
                             [&](std::uint32_t peer) { return !takes(peer) || flow.await_slot(team, peer, chunk); });
    };
    const std::uint64_t begin = chunk * flow.chunk_packs();
    for (std::uint32_t turn = 1; turn < Instance::size(*s.call); turn += kOthers) {
      Rows<aligned16> from[kOthers];
      Pack* to[kOthers] = {};
      std::uint32_t packs[kOthers] = {};
      WEFT_UNROLL
      for (std::uint32_t k = 0; k < kOthers; ++k) {
        if (turn + k >= Instance::size(*s.call)) break;
        const std::uint32_t peer = Instance::rank_in_turn(*s.call, turn + k);
        from[k] = scatter.part_of(scatter.route.owner_at(peer, chunk));
        to[k] = flow.slot(peer, chunk, s.rank());
        packs[k] = flow.packs_in(chunk, from[k].packs());
      }
      const bool good = each_pack<kAtOnce<T>>(
          team, packs, [&](std::uint32_t k, std::uint32_t i, Pack& p) { p = from[k].get(begin + i); },
          [&] { return turn != 1 || ready(); },
          [&](std::uint32_t k, std::uint32_t i, const Pack& p) { team.put(to[k] + i, p); });
      if (!good) return false;
    }
    team.sync();
    Flow::tell_peers(team, s, [&](std::uint32_t peer) {
      if (takes(peer)) flow.announce(team, peer, chunk);
    });
    return true;
  }

  // Reduces the chunk that this rank relays: its own, or one whose sums it passes on.
  template <Team T, class Table>
  static WEFT_FN bool reduce(T& team, const Scatter<Table>& scatter, std::uint64_t chunk) {
    const Session& s = scatter.s;
    const Flow flow = scatter.route.wide(), to_owner = scatter.route.narrow();
    const std::uint32_t owner = scatter.route.owner_at(s.rank(), chunk);
    if (!scatter.has(owner, chunk)) return true;
    if (!Flow::each_peer(team, s, [&](std::uint32_t peer) {
          return flow.await_chunk(team, peer, chunk) && (peer != owner || to_owner.await_slot(team, owner, chunk));
        })) {
      return false;
    }
    const bool own = owner == s.rank();
    const Rows<aligned16> input = scatter.part_of(owner), output = scatter.result();
    const std::uint64_t begin = chunk * flow.chunk_packs();
    const std::uint32_t packs = flow.packs_in(chunk, input.packs()), step = team.size();
    Pack* const passed = own ? nullptr : to_owner.slot(owner, chunk, s.rank());
    const Pack* const slots = flow.slot(s.rank(), chunk, 0);
    const auto reduce_some = [&]<std::uint32_t some>(std::uint32_t i) {
      Pack mine[some], sum[some];
      WEFT_UNROLL
      for (std::uint32_t j = 0; j < some; ++j) mine[j] = input.get(begin + i + j * step);
      Instance::reduce_slots(team, s, scatter.work.op, slots, flow.chunk_packs(), i, step, mine, sum);
      WEFT_UNROLL
      for (std::uint32_t j = 0; j < some; ++j) {
        if (own) {
          output.put(begin + i + j * step, sum[j]);
        } else {
          team.put(passed + i + j * step, sum[j]);
        }
      }
    };
    std::uint32_t i = team.thread_rank();
    for (; i + (kAtOnce<T> - 1) * step < packs; i += kAtOnce<T> * step) {
      reduce_some.template operator()<kAtOnce<T>>(i);
    }
    if constexpr (kAtOnce < T >> 1) {
      for (; i < packs; i += step) reduce_some.template operator()<1>(i);
    }
    team.sync();
    Flow::tell_peers(team, s, [&](std::uint32_t peer) {
      flow.give_credit(team, peer, chunk);
      if (peer == owner) to_owner.announce(team, owner, chunk);
    });
    return true;
  }

  // Takes this rank's chunk, which its relay has summed.
  template <Team T, class Table>
  static WEFT_FN bool take(T& team, const Scatter<Table>& scatter, std::uint64_t chunk) {
    const std::uint32_t self = scatter.s.rank(), relay = scatter.route.relay_of(self, chunk);
    const Flow flow = scatter.route.narrow();
    if (relay == self || !scatter.has(self, chunk)) return true;
    const bool first = team.thread_rank() == 0;
    if (!team.all(!first || flow.await_chunk(team, relay, chunk))) return false;
    const Rows<aligned16> output = scatter.result();
    const std::uint64_t begin = chunk * flow.chunk_packs();
    const std::uint32_t packs[] = {flow.packs_in(chunk, output.packs())};
    const Pack* const from = flow.slot(self, chunk, relay);
    each_pack<4>(
        team, packs, [&](std::uint32_t, std::uint32_t i, Pack& p) { p = team.get(from + i); }, always,
        [&](std::uint32_t, std::uint32_t i, const Pack& p) { output.put(begin + i, p); });
    team.sync();
    if (first) flow.give_credit(team, relay, chunk);
    return true;
  }

  // Waits for the credits that no later chunk has waited for.
  template <Team T, class Table>
  static WEFT_FN bool drain(T& team, const Scatter<Table>& scatter, std::uint64_t chunks, const Flow::Role& role) {
    const Flow flow = scatter.route.wide(), to_owner = scatter.route.narrow();
    return Flow::each_peer(team, scatter.s, [&](std::uint32_t peer) {
      for (std::uint64_t chunk = role.block; chunk < chunks; chunk += role.blocks) {
        if (role.sends && flow.is_last_in_slot(chunk, scatter.chunks_of(scatter.route.owner_at(peer, chunk))) &&
            !flow.await_credit(team, peer, chunk)) {
          return false;
        }
        if (role.receives && peer == scatter.route.owner_at(scatter.s.rank(), chunk) &&
            to_owner.is_last_in_slot(chunk, scatter.chunks_of(peer)) && !to_owner.await_credit(team, peer, chunk)) {
          return false;
        }
      }
      return true;
    });
  }
};

}  // namespace weft::detail
