// Crossings of shards too large for a slot: chunks flow (protocol/flow.hpp) to the shards' owners, which sum them, and
// the sums flow on. Half of the slots serve each hop.
//
// A block sends the first hop's chunks, then the second hop's; another block sums the chunks, then receives sums. No
// wait of the first hop is for the second one, so the hops cannot wait for each other. A block that sends a sum may not
// be the one that made it: the owner signals to itself when a chunk's sum is in the output.
//
// A stage says where sums go, and what goes on: the sums (PlainStage), or what the owner makes of them first
// (ops/normed_crossings). Both hops are streams of packs, and a stage says how each is cut into chunks.
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
  template <Team T, class Crossing>
  static WEFT_FN Flow::Role role_of(T& team, const Crossing&) {
    return Flow::role_of(team);
  }
  // How a shard is cut in either hop: full chunks, and the rest.
  struct Cut {
    const Work& work;
    const Flow& flow;

    WEFT_FN std::uint64_t chunks_of(std::uint64_t rows) const { return flow.chunks_of(work.units(rows)); }
    WEFT_FN std::uint64_t first_pack(std::uint64_t chunk) const { return chunk * flow.chunk_packs(); }
    WEFT_FN std::uint32_t packs_in(std::uint64_t chunk, std::uint64_t rows) const {
      return flow.packs_in(chunk, work.units(rows));
    }
    static constexpr std::uint32_t kPieces = 1;
  };
  template <class Crossing>
  static WEFT_FN Cut cut_of_sums(const Crossing& crossing) {
    return {crossing.work, crossing.summing};
  }
  template <class Crossing>
  static WEFT_FN Cut cut_of_shared(const Crossing& crossing) {
    return {crossing.work, crossing.sharing};
  }
  // Stores a chunk's sums. `sum(team, i)` makes the chunk's sum i, for a thread of the team or of a part of it.
  template <Team T, class Crossing, class Sum>
  static WEFT_FN void put_sums(T& team, const Crossing& crossing, const Cut& cut, std::uint64_t chunk, Sum sum) {
    const std::uint32_t rank = crossing.s.rank(), packs = cut.packs_in(chunk, crossing.table.rows_of(rank));
    const Rows<aligned16> output = crossing.work.template place_of<aligned16>(crossing.table, rank);
    for (std::uint32_t i = team.thread_rank(); i < packs; i += team.size())
      output.put(cut.first_pack(chunk) + i, sum(team, i));
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
    const std::uint64_t half = s.layout().pipeline_slots / 2;
    const Crossing<Table> crossing{s, work, Stage::shards(work), table, Flow{&s, 0, half, 1}, Flow{&s, half, half, 1}};
    const Flow::Role role = Stage::role_of(team, crossing);
    const auto sums = Stage::cut_of_sums(crossing), shares = Stage::cut_of_shared(crossing);
    // Turn k of a block is chunk block + k · blocks of every shard; with pieces, all of unit block + k / pieces ·
    // blocks. A block with both roles receives a chunk one turn later, if there are slots for both.
    const std::uint64_t behind = half > 1 ? role.blocks : 0;
    const auto each_turn = [&](const auto& cut, auto send, auto receive) {
      const std::uint64_t chunks = cut.chunks_of(table.most_rows());
      for (std::uint64_t turn = role.block; turn < turns_of(cut, role, chunks) + behind; turn += role.blocks) {
        const std::uint64_t chunk = chunk_of(cut, role, turn);
        if (role.sends && chunk < chunks && !send(chunk)) return false;
        if (role.receives && turn >= behind && !receive(chunk_of(cut, role, turn - behind))) return false;
      }
      return true;
    };
    // A rank with nothing to sum makes what goes on right before it sends it; else whoever has summed makes it.
    const auto sum = [&] {
      return each_turn(
          sums, [&](std::uint64_t chunk) { return send_parts(team, crossing, sums, chunk); },
          [&](std::uint64_t chunk) {
            const bool good = reduce(team, crossing, sums, chunk);
            if constexpr (Stage::kMakes) return good && Stage::make_of_sums(team, crossing, chunk);
            return good;
          });
    };
    const auto share = [&] {
      return each_turn(
          shares,
          [&](std::uint64_t chunk) {
            if constexpr (Stage::kMakes) {
              if (!Stage::make_alone(team, crossing, chunk)) return false;
            }
            return send_shared(team, crossing, shares, chunk);
          },
          [&](std::uint64_t chunk) { return receive(team, crossing, shares, chunk); });
    };
    if constexpr (Stage::kMakes) {
      if (!Stage::is_alone(crossing) && !sum()) return false;
    } else {
      if (!sum()) return false;
    }
    return share() && (!role.sends || drain(team, crossing, role, sums, shares));
  }

 private:
  static constexpr std::uint32_t kAtOnce = 4;  // packs of one message
  static constexpr std::uint32_t kBatch = 4;   // ranks whose packs are summed at once

  template <class Cut>
  static WEFT_FN std::uint64_t chunk_of(const Cut& cut, const Flow::Role& role, std::uint64_t turn) {
    if constexpr (requires { Cut::kPieces; }) {
      return turn;
    } else {
      const std::uint64_t round = turn / role.blocks;
      return (round / cut.pieces * role.blocks + role.block) * cut.pieces + round % cut.pieces;
    }
  }
  // The end of the turns that are needed for so many chunks.
  template <class Cut>
  static WEFT_FN std::uint64_t turns_of(const Cut& cut, const Flow::Role& role, std::uint64_t chunks) {
    if constexpr (requires { Cut::kPieces; }) {
      return chunks;
    } else {
      const std::uint64_t units = chunks / cut.pieces;
      return (units + role.blocks - 1) / role.blocks * role.blocks * cut.pieces;
    }
  }

  template <class Table>
  using Crossing = FlowingCrossing<Work, Table>;

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
  template <Team T, class Table, class Cut>
  static WEFT_FN bool send_parts(T& team, const Crossing<Table>& crossing, const Cut& cut, std::uint64_t chunk) {
    const Session& s = crossing.s;
    const Circle owners = crossing.first_circle();
    const Flow& flow = crossing.summing;
    if (!each_peer(team, s, owners, [&](std::uint32_t owner) {
          return chunk >= cut.chunks_of(crossing.table.rows_of(owner)) || flow.await_slot(team, owner, chunk);
        })) {
      return false;
    }
    for (std::uint32_t turn = 1; turn < owners.size; ++turn) {
      const std::uint32_t owner = owners.rank_in_turn(s.rank(), turn);
      const std::uint32_t packs[] = {cut.packs_in(chunk, crossing.table.rows_of(owner))};
      const auto from = crossing.shards.template part_of<aligned16>(crossing.table, owner);
      Pack* const to = flow.slot(owner, chunk, s.rank());
      each_pack<kAtOnce>(
          team, packs, [&](std::uint32_t, std::uint32_t i, Pack& p) { p = from.get(cut.first_pack(chunk) + i); },
          always, [&](std::uint32_t, std::uint32_t i, const Pack& p) { team.put(to + i, p); });
    }
    tell_peers(team, s, owners, [&](std::uint32_t owner) {
      if (chunk < cut.chunks_of(crossing.table.rows_of(owner))) flow.announce(team, owner, chunk);
    });
    return true;
  }

  // Sums a chunk of this rank's shard.
  template <Team T, class Table, class Cut>
  static WEFT_FN bool reduce(T& team, const Crossing<Table>& crossing, const Cut& cut, std::uint64_t chunk) {
    const Session& s = crossing.s;
    const Circle senders = crossing.first_circle();
    const Flow& flow = crossing.summing;
    if (chunk >= cut.chunks_of(crossing.table.rows_of(s.rank()))) return true;
    if (!each_peer(team, s, senders, [&](std::uint32_t peer) { return flow.await_chunk(team, peer, chunk); }))
      return false;
    const auto input = crossing.shards.template part_of<aligned16>(crossing.table, s.rank());
    const std::uint64_t first = cut.first_pack(chunk);
    const Pack* const slots = flow.slot(s.rank(), chunk, 0);
    Stage::put_sums(team, crossing, cut, chunk, [&](auto& some, std::uint32_t i) {
      return sum_of(some, s, senders, slots + i, flow.chunk_packs(), input.get(first + i));
    });
    // To itself before any credit: behind one, the next chunk of the slot may be summed and announced by another block.
    team.sync();  // every thread's sums are stored
    if (!Stage::kMakes && team.thread_rank() == 0) flow.announce(team, s.rank(), chunk);
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
  template <Team T, class Table, class Cut>
  static WEFT_FN bool send_shared(T& team, const Crossing<Table>& crossing, const Cut& cut, std::uint64_t chunk) {
    const Session& s = crossing.s;
    const Circle takers = crossing.second_circle();
    const Flow& flow = crossing.sharing;
    if (chunk >= cut.chunks_of(crossing.table.rows_of(s.rank()))) return true;
    if (!each_peer(team, s, takers, [&](std::uint32_t taker) { return flow.await_slot(team, taker, chunk); }) ||
        !team.all(Stage::await_shared(team, crossing, chunk))) {
      return false;
    }
    const std::uint32_t packs[] = {cut.packs_in(chunk, crossing.table.rows_of(s.rank()))};
    const auto from = Stage::shared(crossing, s.rank());
    each_pack<kAtOnce>(
        team, packs, [&](std::uint32_t, std::uint32_t i, Pack& p) { p = from.get(cut.first_pack(chunk) + i); }, always,
        [&](std::uint32_t, std::uint32_t i, const Pack& p) {
          for (std::uint32_t turn = 1; turn < takers.size; ++turn)
            team.put(flow.slot(takers.rank_in_turn(s.rank(), turn), chunk, s.rank()) + i, p);
        });
    tell_peers(team, s, takers, [&](std::uint32_t taker) { flow.announce(team, taker, chunk); });
    return true;
  }

  // Takes a chunk of each other owner's shard.
  template <Team T, class Table, class Cut>
  static WEFT_FN bool receive(T& team, const Crossing<Table>& crossing, const Cut& cut, std::uint64_t chunk) {
    const Session& s = crossing.s;
    const Circle owners = crossing.second_circle();
    const Flow& flow = crossing.sharing;
    if (!each_peer(team, s, owners, [&](std::uint32_t owner) {
          return chunk >= cut.chunks_of(crossing.table.rows_of(owner)) || flow.await_chunk(team, owner, chunk);
        })) {
      return false;
    }
    for (std::uint32_t turn = 1; turn < owners.size; ++turn) {
      const std::uint32_t owner = owners.rank_in_turn(s.rank(), turn);
      const std::uint32_t packs[] = {cut.packs_in(chunk, crossing.table.rows_of(owner))};
      const auto to = Stage::shared(crossing, owner);
      const Pack* const from = flow.slot(s.rank(), chunk, owner);
      each_pack<kAtOnce>(
          team, packs, [&](std::uint32_t, std::uint32_t i, Pack& p) { p = team.get(from + i); }, always,
          [&](std::uint32_t, std::uint32_t i, const Pack& p) { to.put(cut.first_pack(chunk) + i, p); });
    }
    tell_peers(team, s, owners, [&](std::uint32_t owner) {
      if (chunk < cut.chunks_of(crossing.table.rows_of(owner))) flow.give_credit(team, owner, chunk);
    });
    return true;
  }

  // Waits for the credits that no later chunk has waited for.
  template <Team T, class Table, class Cut>
  static WEFT_FN bool drain(T& team, const Crossing<Table>& crossing, const Flow::Role& role, const Cut& sums,
                            const Cut& shares) {
    const Session& s = crossing.s;
    const auto each_last = [&](const Flow& flow, std::uint32_t peer, std::uint64_t chunks) {
      for (std::uint64_t chunk = role.block; chunk < chunks; chunk += role.blocks) {
        if (flow.is_last_in_slot(chunk, chunks) && !flow.await_credit(team, peer, chunk)) return false;
      }
      return true;
    };
    return each_peer(team, s, crossing.first_circle(),
                     [&](std::uint32_t owner) {
                       return each_last(crossing.summing, owner, sums.chunks_of(crossing.table.rows_of(owner)));
                     }) &&
           each_peer(team, s, crossing.second_circle(), [&](std::uint32_t taker) {
             return each_last(crossing.sharing, taker, shares.chunks_of(crossing.table.rows_of(s.rank())));
           });
  }
};

}  // namespace weft::detail
