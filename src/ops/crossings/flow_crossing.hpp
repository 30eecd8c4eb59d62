// Crossings of shards too large for a slot: chunks flow (protocol/flow.hpp) to the shards' owners, which sum them, and
// the sums flow on. Half of the slots serve each hop.
//
// A block sends the first hop's chunks, then the second hop's; another block sums the chunks, then receives sums. No
// wait of the first hop is for the second one, so the hops cannot wait for each other. A block that sends a sum may not
// be the one that made it: the owner signals to itself when a chunk's sum is in the output.
#pragma once

#include <cstdint>

#include "ops/all_reduce/all_reduce.hpp"
#include "ops/crossings/crossing_work.hpp"
#include "protocol/each_pack.hpp"
#include "protocol/flow.hpp"

namespace weft::detail {

// `R`: the reduction of packs without a wire format.
template <class R, bool aligned16>
struct FlowCrossing {
  using Work = CrossingWork;

  template <Team T, class Table>
  static WEFT_FN bool run(T& team, const Session& s, const Work& work, const Table& table) {
    const Flow::Role role = Flow::role_of(team);
    const std::uint64_t half = s.layout().pipeline_slots / 2;
    const Crossing<Table> crossing{s, work, table, Flow{&s, 0, half, 1}, Flow{&s, half, half, 1}};
    const std::uint64_t chunks = crossing.summing.chunks_of(work.units(table.most_rows()));
    // Turn k of a block is chunk block + k · blocks of every shard. A block with both roles receives a chunk one turn
    // later, if there are slots for both.
    const std::uint64_t behind = half > 1 ? role.blocks : 0;
    const auto each_turn = [&](auto send, auto receive) {
      for (std::uint64_t chunk = role.block; chunk < chunks + behind; chunk += role.blocks) {
        if (role.sends && chunk < chunks && !send(chunk)) return false;
        if (role.receives && chunk >= behind && !receive(chunk - behind)) return false;
      }
      return true;
    };
    return each_turn([&](std::uint64_t chunk) { return send_parts(team, crossing, chunk); },
                     [&](std::uint64_t chunk) { return reduce(team, crossing, chunk); }) &&
           each_turn([&](std::uint64_t chunk) { return send_sums(team, crossing, chunk); },
                     [&](std::uint64_t chunk) { return receive(team, crossing, chunk); }) &&
           (!role.sends || drain(team, crossing, chunks, role));
  }

 private:
  static constexpr std::uint32_t kAtOnce = 4;  // packs of one message
  static constexpr std::uint32_t kBatch = 4;   // ranks whose packs are summed at once

  template <class Table>
  struct Crossing {
    const Session& s;
    const Work& work;
    const Table& table;
    Flow summing, sharing;  // the two hops

    WEFT_FN std::uint64_t packs_of(std::uint32_t owner) const { return work.units(table.rows_of(owner)); }
    WEFT_FN std::uint64_t chunks_of(std::uint32_t owner) const { return summing.chunks_of(packs_of(owner)); }
    WEFT_FN bool has(std::uint32_t owner, std::uint64_t chunk) const { return chunk < chunks_of(owner); }
    WEFT_FN std::uint32_t packs_in(std::uint64_t chunk, std::uint32_t owner) const {
      return summing.packs_in(chunk, packs_of(owner));
    }
    WEFT_FN std::uint64_t first_pack(std::uint64_t chunk) const { return chunk * summing.chunk_packs(); }
    WEFT_FN Circle first_circle() const { return work.partition.summing(s.rank()); }
    WEFT_FN Circle second_circle() const { return work.partition.sharing(s.rank()); }
  };

  // Calls `serve(peer)` for this thread's peers in the circle; true in all threads of the block if all calls were true.
  template <Team T, class Serve>
  static WEFT_FN bool each_peer(T& team, const Session& s, const Circle& circle, Serve serve) {
    bool good = true;
    for (std::uint32_t turn = 1 + team.thread_rank(); good && turn < circle.size; turn += team.size())
      good = serve(circle.rank_in_turn(s.rank(), turn));
    return team.all(good);
  }
  // The same for calls that cannot fail.
  template <Team T, class Tell>
  static WEFT_FN void tell_peers(T& team, const Session& s, const Circle& circle, Tell tell) {
    team.sync();  // every thread has read or put its packs
    for (std::uint32_t turn = 1 + team.thread_rank(); turn < circle.size; turn += team.size())
      tell(circle.rank_in_turn(s.rank(), turn));
  }

  // Sends each owner a chunk of this rank's part of its shard.
  template <Team T, class Table>
  static WEFT_FN bool send_parts(T& team, const Crossing<Table>& crossing, std::uint64_t chunk) {
    const Session& s = crossing.s;
    const Circle owners = crossing.first_circle();
    const Flow& flow = crossing.summing;
    if (!each_peer(team, s, owners, [&](std::uint32_t owner) {
          return !crossing.has(owner, chunk) || flow.await_slot(team, owner, chunk);
        })) {
      return false;
    }
    for (std::uint32_t turn = 1; turn < owners.size; ++turn) {
      const std::uint32_t owner = owners.rank_in_turn(s.rank(), turn);
      const std::uint32_t packs[] = {crossing.packs_in(chunk, owner)};
      const auto from = crossing.work.template part_of<aligned16>(crossing.table, owner);
      Pack* const to = flow.slot(owner, chunk, s.rank());
      each_pack<kAtOnce>(
          team, packs, [&](std::uint32_t, std::uint32_t i, Pack& p) { p = from.get(crossing.first_pack(chunk) + i); },
          always, [&](std::uint32_t, std::uint32_t i, const Pack& p) { team.put(to + i, p); });
    }
    tell_peers(team, s, owners, [&](std::uint32_t owner) {
      if (crossing.has(owner, chunk)) flow.announce(team, owner, chunk);
    });
    return true;
  }

  // Sums a chunk of this rank's shard.
  template <Team T, class Table>
  static WEFT_FN bool reduce(T& team, const Crossing<Table>& crossing, std::uint64_t chunk) {
    const Session& s = crossing.s;
    const Circle senders = crossing.first_circle();
    const Flow& flow = crossing.summing;
    if (!crossing.has(s.rank(), chunk)) return true;
    if (!each_peer(team, s, senders, [&](std::uint32_t peer) { return flow.await_chunk(team, peer, chunk); }))
      return false;
    const auto input = crossing.work.template part_of<aligned16>(crossing.table, s.rank());
    const auto output = crossing.work.template place_of<aligned16>(crossing.table, s.rank());
    const std::uint32_t packs = crossing.packs_in(chunk, s.rank());
    const Pack* const slots = flow.slot(s.rank(), chunk, 0);
    for (std::uint32_t i = team.thread_rank(); i < packs; i += team.size()) {
      const std::uint64_t at = crossing.first_pack(chunk) + i;
      output.put(at, sum_of(team, s, senders, slots + i, flow.chunk_packs(), input.get(at)));
    }
    // To itself before any credit: behind one, the next chunk of the slot may be summed and announced by another block.
    team.sync();  // every thread's sums are stored
    if (team.thread_rank() == 0) flow.announce(team, s.rank(), chunk);
    tell_peers(team, s, senders, [&](std::uint32_t peer) { flow.give_credit(team, peer, chunk); });
    return true;
  }
  template <Team T>
  static WEFT_FN Pack sum_of(T& team, const Session& s, const Circle& senders, const Pack* slots, std::uint64_t packs,
                             const Pack& own) {
    auto sum = R::start(ReduceOp::sum, senders.size);
    for (std::uint32_t first = senders.first; first < senders.end(); first += kBatch) {
      Pack received[kBatch] = {};
      WEFT_UNROLL
      for (std::uint32_t k = 0; k < kBatch; ++k) {
        if (first + k >= senders.end()) break;
        received[k] = first + k == s.rank() ? own : team.get(slots + (first + k) * packs);
      }
      WEFT_UNROLL
      for (std::uint32_t k = 0; k < kBatch; ++k) {
        if (first + k >= senders.end()) break;
        if (first + k == senders.first) {
          R::begin(sum, received[k]);
        } else {
          R::add(sum, received[k]);
        }
      }
    }
    return R::finish(sum);
  }

  // Sends the sums of a chunk of this rank's shard on, once they are made.
  template <Team T, class Table>
  static WEFT_FN bool send_sums(T& team, const Crossing<Table>& crossing, std::uint64_t chunk) {
    const Session& s = crossing.s;
    const Circle takers = crossing.second_circle();
    const Flow& flow = crossing.sharing;
    if (!crossing.has(s.rank(), chunk)) return true;
    if (!each_peer(team, s, takers, [&](std::uint32_t taker) { return flow.await_slot(team, taker, chunk); }) ||
        !team.all(team.thread_rank() != 0 || crossing.summing.await_own(team, chunk))) {
      return false;
    }
    const std::uint32_t packs[] = {crossing.packs_in(chunk, s.rank())};
    const auto from = crossing.work.template place_of<aligned16>(crossing.table, s.rank());
    each_pack<kAtOnce>(
        team, packs, [&](std::uint32_t, std::uint32_t i, Pack& p) { p = from.get(crossing.first_pack(chunk) + i); },
        always,
        [&](std::uint32_t, std::uint32_t i, const Pack& p) {
          for (std::uint32_t turn = 1; turn < takers.size; ++turn)
            team.put(flow.slot(takers.rank_in_turn(s.rank(), turn), chunk, s.rank()) + i, p);
        });
    tell_peers(team, s, takers, [&](std::uint32_t taker) { flow.announce(team, taker, chunk); });
    return true;
  }

  // Takes the sums of a chunk of each other owner's shard.
  template <Team T, class Table>
  static WEFT_FN bool receive(T& team, const Crossing<Table>& crossing, std::uint64_t chunk) {
    const Session& s = crossing.s;
    const Circle owners = crossing.second_circle();
    const Flow& flow = crossing.sharing;
    if (!each_peer(team, s, owners, [&](std::uint32_t owner) {
          return !crossing.has(owner, chunk) || flow.await_chunk(team, owner, chunk);
        })) {
      return false;
    }
    for (std::uint32_t turn = 1; turn < owners.size; ++turn) {
      const std::uint32_t owner = owners.rank_in_turn(s.rank(), turn);
      const std::uint32_t packs[] = {crossing.packs_in(chunk, owner)};
      const auto to = crossing.work.template place_of<aligned16>(crossing.table, owner);
      const Pack* const from = flow.slot(s.rank(), chunk, owner);
      each_pack<kAtOnce>(
          team, packs, [&](std::uint32_t, std::uint32_t i, Pack& p) { p = team.get(from + i); }, always,
          [&](std::uint32_t, std::uint32_t i, const Pack& p) { to.put(crossing.first_pack(chunk) + i, p); });
    }
    tell_peers(team, s, owners, [&](std::uint32_t owner) {
      if (crossing.has(owner, chunk)) flow.give_credit(team, owner, chunk);
    });
    return true;
  }

  // Waits for the credits that no later chunk has waited for.
  template <Team T, class Table>
  static WEFT_FN bool drain(T& team, const Crossing<Table>& crossing, std::uint64_t chunks, const Flow::Role& role) {
    const Session& s = crossing.s;
    const auto each_last = [&](const Flow& flow, std::uint32_t peer, std::uint64_t all) {
      for (std::uint64_t chunk = role.block; chunk < chunks; chunk += role.blocks) {
        if (flow.is_last_in_slot(chunk, all) && !flow.await_credit(team, peer, chunk)) return false;
      }
      return true;
    };
    return each_peer(
               team, s, crossing.first_circle(),
               [&](std::uint32_t owner) { return each_last(crossing.summing, owner, crossing.chunks_of(owner)); }) &&
           each_peer(team, s, crossing.second_circle(), [&](std::uint32_t taker) {
             return each_last(crossing.sharing, taker, crossing.chunks_of(s.rank()));
           });
  }
};

}  // namespace weft::detail
