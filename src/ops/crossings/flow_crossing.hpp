// Crossings of shards too large for a slot: chunks flow (protocol/flow.hpp) to the shards' owners, which sum them, and
// the sums flow on. Half of the slots serve each hop.
//
// A block sends the first hop's chunks, then the second hop's; another block sums the chunks, then receives sums. No
// wait of the first hop is for the second one, so the hops cannot wait for each other. A block that sends a sum may not
// be the one that made it: the owner signals to itself when a chunk's sum is in the output.
//
// A stage says where sums go, and what goes on: the sums (PlainStage), or what the owner makes of them first
// (ops/normed_crossings). Both hops are streams of packs, each with its own number of packs for a shard.
#pragma once

#include <cstdint>

#include "ops/all_reduce/all_reduce.hpp"
#include "ops/crossings/crossing_work.hpp"
#include "protocol/each_pack.hpp"
#include "protocol/flow.hpp"

namespace weft::detail {

// The two hops of a call. `shards`: its CrossingWork.
template <class Work, class Table>
struct FlowingCrossing {
  const Session& s;
  const Work& work;
  const CrossingWork& shards;
  const Table& table;
  Flow summing, sharing;

  WEFT_FN Circle first_circle() const { return shards.partition.summing(s.rank()); }
  WEFT_FN Circle second_circle() const { return shards.partition.sharing(s.rank()); }
};

// Sums go on as they are.
template <bool aligned16>
struct PlainStage {
  using Work = CrossingWork;
  static constexpr bool kMakes = false;  // whether make() comes between the hops

  static WEFT_FN const CrossingWork& shards(const Work& work) { return work; }
  // Packs of a shard in either hop.
  static WEFT_FN std::uint64_t packs_summed(const Work& work, std::uint64_t rows) { return work.units(rows); }
  static WEFT_FN std::uint64_t packs_shared(const Work& work, std::uint64_t rows) { return work.units(rows); }
  // The place of this rank's sums: put(pack, sum).
  template <class Crossing>
  static WEFT_FN Rows<aligned16> sums(const Crossing& crossing) {
    return crossing.work.template place_of<aligned16>(crossing.table, crossing.s.rank());
  }
  // A shard's packs of the second hop: get(pack), put(pack, payload).
  template <class Crossing>
  static WEFT_FN Rows<aligned16> shared(const Crossing& crossing, std::uint32_t owner) {
    return crossing.work.template place_of<aligned16>(crossing.table, owner);
  }
  // By all threads of a block: waits until a chunk of this rank's shard can go on.
  template <Team T, class Crossing>
  static WEFT_FN bool await_shared(T& team, const Crossing& crossing, std::uint64_t chunk) {
    return team.thread_rank() != 0 || crossing.summing.await_own(team, chunk);
  }
};

// `R`: the reduction of packs without a wire format.
template <class R, bool aligned16, class Stage = PlainStage<aligned16>>
struct FlowCrossing {
  using Work = typename Stage::Work;

  template <Team T, class Table>
  static WEFT_FN bool run(T& team, const Session& s, const Work& work, const Table& table) {
    const Flow::Role role = Flow::role_of(team);
    const std::uint64_t half = s.layout().pipeline_slots / 2;
    const Crossing<Table> crossing{s, work, Stage::shards(work), table, Flow{&s, 0, half, 1}, Flow{&s, half, half, 1}};
    const std::uint64_t summed = crossing.summing.chunks_of(Stage::packs_summed(work, table.most_rows()));
    const std::uint64_t shared = crossing.sharing.chunks_of(Stage::packs_shared(work, table.most_rows()));
    // Turn k of a block is chunk block + k · blocks of every shard. A block with both roles receives a chunk one turn
    // later, if there are slots for both.
    const std::uint64_t behind = half > 1 ? role.blocks : 0;
    const auto each_turn = [&](std::uint64_t chunks, auto send, auto receive) {
      for (std::uint64_t chunk = role.block; chunk < chunks + behind; chunk += role.blocks) {
        if (role.sends && chunk < chunks && !send(chunk)) return false;
        if (role.receives && chunk >= behind && !receive(chunk - behind)) return false;
      }
      return true;
    };
    const auto sum = [&] {
      return each_turn(
          summed, [&](std::uint64_t chunk) { return send_parts(team, crossing, chunk); },
          [&](std::uint64_t chunk) { return reduce(team, crossing, chunk); });
    };
    const auto share = [&](auto make) {
      return each_turn(
          shared, [&](std::uint64_t chunk) { return make(chunk) && send_shared(team, crossing, chunk); },
          [&](std::uint64_t chunk) { return receive(team, crossing, chunk); });
    };
    if constexpr (Stage::kMakes) {
      // Blocks of a rank with nothing to sum make each chunk before they send it. Else all blocks make their share when
      // they have sent or summed: the sums of a row come from several chunks.
      const bool alone = Stage::is_alone(crossing);
      const std::uint64_t own = crossing.shared_chunks(s.rank()), blocks = team.blocks() - 1;
      if (!alone && !sum()) return false;
      const std::uint64_t run = own / blocks < 1 ? 1 : own / blocks < kMostMade ? own / blocks : kMostMade;
      for (std::uint64_t chunk = (team.block_rank() - 1) * run; !alone && chunk < own; chunk += blocks * run) {
        if (!Stage::make(team, crossing, chunk, run < own - chunk ? run : own - chunk)) return false;
      }
      if (!share(
              [&](std::uint64_t chunk) { return !alone || chunk >= own || Stage::make(team, crossing, chunk, 1); })) {
        return false;
      }
    } else {
      if (!sum() || !share([](std::uint64_t) { return true; })) return false;
    }
    return !role.sends || drain(team, crossing, role);
  }

 private:
  static constexpr std::uint32_t kAtOnce = 4;  // packs of one message
  static constexpr std::uint32_t kBatch = 4;   // ranks whose packs are summed at once
  // Chunks that a block makes at once: its parts share their rows, of which a chunk may have one alone.
  static constexpr std::uint64_t kMostMade = 4;

  template <class Table>
  struct Crossing : FlowingCrossing<Work, Table> {
    using Base = FlowingCrossing<Work, Table>;
    using Base::sharing;
    using Base::summing;

    WEFT_FN std::uint64_t summed_packs(std::uint32_t owner) const {
      return Stage::packs_summed(Base::work, Base::table.rows_of(owner));
    }
    WEFT_FN std::uint64_t shared_packs(std::uint32_t owner) const {
      return Stage::packs_shared(Base::work, Base::table.rows_of(owner));
    }
    WEFT_FN std::uint64_t summed_chunks(std::uint32_t owner) const { return summing.chunks_of(summed_packs(owner)); }
    WEFT_FN std::uint64_t shared_chunks(std::uint32_t owner) const { return sharing.chunks_of(shared_packs(owner)); }
    WEFT_FN std::uint64_t first_pack(std::uint64_t chunk) const { return chunk * summing.chunk_packs(); }
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
          return chunk >= crossing.summed_chunks(owner) || flow.await_slot(team, owner, chunk);
        })) {
      return false;
    }
    for (std::uint32_t turn = 1; turn < owners.size; ++turn) {
      const std::uint32_t owner = owners.rank_in_turn(s.rank(), turn);
      const std::uint32_t packs[] = {flow.packs_in(chunk, crossing.summed_packs(owner))};
      const auto from = crossing.shards.template part_of<aligned16>(crossing.table, owner);
      Pack* const to = flow.slot(owner, chunk, s.rank());
      each_pack<kAtOnce>(
          team, packs, [&](std::uint32_t, std::uint32_t i, Pack& p) { p = from.get(crossing.first_pack(chunk) + i); },
          always, [&](std::uint32_t, std::uint32_t i, const Pack& p) { team.put(to + i, p); });
    }
    tell_peers(team, s, owners, [&](std::uint32_t owner) {
      if (chunk < crossing.summed_chunks(owner)) flow.announce(team, owner, chunk);
    });
    return true;
  }

  // Sums a chunk of this rank's shard.
  template <Team T, class Table>
  static WEFT_FN bool reduce(T& team, const Crossing<Table>& crossing, std::uint64_t chunk) {
    const Session& s = crossing.s;
    const Circle senders = crossing.first_circle();
    const Flow& flow = crossing.summing;
    if (chunk >= crossing.summed_chunks(s.rank())) return true;
    if (!each_peer(team, s, senders, [&](std::uint32_t peer) { return flow.await_chunk(team, peer, chunk); }))
      return false;
    const auto input = crossing.shards.template part_of<aligned16>(crossing.table, s.rank());
    const auto output = Stage::sums(crossing);
    const std::uint32_t packs = flow.packs_in(chunk, crossing.summed_packs(s.rank()));
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

  // Sends a chunk of this rank's shard on, once it is made.
  template <Team T, class Table>
  static WEFT_FN bool send_shared(T& team, const Crossing<Table>& crossing, std::uint64_t chunk) {
    const Session& s = crossing.s;
    const Circle takers = crossing.second_circle();
    const Flow& flow = crossing.sharing;
    if (chunk >= crossing.shared_chunks(s.rank())) return true;
    if (!each_peer(team, s, takers, [&](std::uint32_t taker) { return flow.await_slot(team, taker, chunk); }) ||
        !team.all(Stage::await_shared(team, crossing, chunk))) {
      return false;
    }
    const std::uint32_t packs[] = {flow.packs_in(chunk, crossing.shared_packs(s.rank()))};
    const auto from = Stage::shared(crossing, s.rank());
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

  // Takes a chunk of each other owner's shard.
  template <Team T, class Table>
  static WEFT_FN bool receive(T& team, const Crossing<Table>& crossing, std::uint64_t chunk) {
    const Session& s = crossing.s;
    const Circle owners = crossing.second_circle();
    const Flow& flow = crossing.sharing;
    if (!each_peer(team, s, owners, [&](std::uint32_t owner) {
          return chunk >= crossing.shared_chunks(owner) || flow.await_chunk(team, owner, chunk);
        })) {
      return false;
    }
    for (std::uint32_t turn = 1; turn < owners.size; ++turn) {
      const std::uint32_t owner = owners.rank_in_turn(s.rank(), turn);
      const std::uint32_t packs[] = {flow.packs_in(chunk, crossing.shared_packs(owner))};
      const auto to = Stage::shared(crossing, owner);
      const Pack* const from = flow.slot(s.rank(), chunk, owner);
      each_pack<kAtOnce>(
          team, packs, [&](std::uint32_t, std::uint32_t i, Pack& p) { p = team.get(from + i); }, always,
          [&](std::uint32_t, std::uint32_t i, const Pack& p) { to.put(crossing.first_pack(chunk) + i, p); });
    }
    tell_peers(team, s, owners, [&](std::uint32_t owner) {
      if (chunk < crossing.shared_chunks(owner)) flow.give_credit(team, owner, chunk);
    });
    return true;
  }

  // Waits for the credits that no later chunk has waited for.
  template <Team T, class Table>
  static WEFT_FN bool drain(T& team, const Crossing<Table>& crossing, const Flow::Role& role) {
    const Session& s = crossing.s;
    const auto each_last = [&](const Flow& flow, std::uint32_t peer, std::uint64_t chunks) {
      for (std::uint64_t chunk = role.block; chunk < chunks; chunk += role.blocks) {
        if (flow.is_last_in_slot(chunk, chunks) && !flow.await_credit(team, peer, chunk)) return false;
      }
      return true;
    };
    return each_peer(team, s, crossing.first_circle(),
                     [&](std::uint32_t owner) {
                       return each_last(crossing.summing, owner, crossing.summed_chunks(owner));
                     }) &&
           each_peer(team, s, crossing.second_circle(), [&](std::uint32_t taker) {
             return each_last(crossing.sharing, taker, crossing.shared_chunks(s.rank()));
           });
  }
};

}  // namespace weft::detail
