// Crossings of shards too large for a slot: chunks flow (protocol/flow.hpp) to the shards' owners, which sum them, and
// what they make of the sums flows on. Half of the slots serve each hop.
//
// Blocks have three roles. Senders send this rank's parts to the owners of shards. Makers sum a chunk of this rank's
// shard, store what it becomes, and send it on from their registers. Receivers take chunks of the other owners' shards.
// Two data blocks or one have all roles, and serve a chunk in each of them before their next one. So both hops fill the
// links at the same time.
//
// Waits form no circle. A slot is free when its receiver has served an earlier chunk. A chunk comes when its sender
// has served it in the role before. Every block serves its chunks in ascending order.
//
// A stage says what becomes of sums (PlainStage: nothing; ops/normed_crossings), and how a shard is cut into chunks.
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
  WEFT_FN std::uint64_t own_rows() const { return table.rows_of(s.rank()); }
};

// Sums go on as they are.
template <bool aligned16>
struct PlainStage {
  using Work = CrossingWork;
  static constexpr bool kHasPieces = false;

  static WEFT_FN const CrossingWork& shards(const Work& work) { return work; }
  // The cut of a shard in either hop: full chunks, and the rest.
  struct Cut {
    const Work& work;
    const Flow& flow;
    static constexpr std::uint32_t pieces = 1;  // chunks of a unit, which one block makes

    WEFT_FN std::uint64_t chunks_of(std::uint64_t rows) const { return flow.chunks_of(work.units(rows)); }
    WEFT_FN std::uint64_t first_pack(std::uint64_t chunk) const { return chunk * flow.chunk_packs(); }
    WEFT_FN std::uint32_t packs_in(std::uint64_t chunk, std::uint64_t rows) const {
      return flow.packs_in(chunk, work.units(rows));
    }
  };
  template <class Crossing>
  static WEFT_FN Cut cut_of_sums(const Crossing& crossing) {
    return {crossing.work, crossing.summing};
  }
  template <class Crossing>
  static WEFT_FN Cut cut_of_shared(const Crossing& crossing) {
    return {crossing.work, crossing.sharing};
  }
  // Makes a chunk: stores what goes on, and gives it to `push(i, pack)`. `sum(own, i, step, left, sums)` makes the sums
  // of the chunk's packs i, i + step, …, of `left` that there are from i on; own(k) is this rank's part i + k.
  template <Team T, class Crossing, class Sum, class Push>
  static WEFT_FN void make(T& team, const Crossing& crossing, const Cut& cut, std::uint64_t chunk, Sum sum, Push push) {
    constexpr std::uint32_t at_once = kPacksAtOnce;
    const std::uint32_t step = team.size(), packs = cut.packs_in(chunk, crossing.own_rows());
    const std::uint32_t rank = crossing.s.rank();
    const std::uint64_t first = cut.first_pack(chunk);
    const Rows<aligned16> input = crossing.work.template part_of<aligned16>(crossing.table, rank);
    const Rows<aligned16> output = shared(crossing, rank);
    for (std::uint32_t i = team.thread_rank(); i < packs; i += at_once * step) {
      Pack sums[at_once];
      sum([&](std::uint32_t k) { return input.get(first + i + k); }, i, step, packs - i, sums);
      WEFT_UNROLL
      for (std::uint32_t k = 0; k < at_once; ++k) {
        if (k * step >= packs - i) break;
        output.put(first + i + k * step, sums[k]);
        push(i + k * step, sums[k]);
      }
    }
  }
  // A shard's packs of the second hop: get(pack), put(pack, payload).
  template <class Crossing>
  static WEFT_FN Rows<aligned16> shared(const Crossing& crossing, std::uint32_t owner) {
    return crossing.work.template place_of<aligned16>(crossing.table, owner);
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
    const auto sums = Stage::cut_of_sums(crossing), shares = Stage::cut_of_shared(crossing);
    const Role role = role_of(team, crossing);
    const std::uint64_t units = sums.chunks_of(table.most_rows()) / sums.pieces;
    for (std::uint64_t unit = role.block; unit < units; unit += role.blocks) {
      const auto each_piece = [&](auto serve) {
        for (std::uint32_t piece = 0; piece < sums.pieces; ++piece) {
          if (!serve(unit * sums.pieces + piece)) return false;
        }
        return true;
      };
      if (!each_piece([&](std::uint64_t chunk) {
            return (!role.sends || send_parts(team, crossing, sums, chunk)) &&
                   (!role.makes || make(team, crossing, sums, chunk));
          }) ||
          !each_piece([&](std::uint64_t chunk) {
            if constexpr (Stage::kHasPieces) {
              if (role.makes && shares.pieces != 1 && !send_piece(team, crossing, shares, chunk)) return false;
            }
            return !role.receives || receive(team, crossing, shares, chunk);
          })) {
        return false;
      }
    }
    return drain(team, crossing, role, sums, shares);
  }

 private:
  template <class Table>
  using Crossing = FlowingCrossing<Work, Table>;

  // The role of a data block. Units are dealt to the `blocks` blocks with the same role. Makers do most. Nobody sends
  // to a rank that is alone in its first circle, and nobody receives from one that is alone in its second.
  struct Role {
    bool sends, makes, receives;
    std::uint32_t block, blocks;
  };
  template <Team T, class Table>
  static WEFT_FN Role role_of(T& team, const Crossing<Table>& crossing) {
    const std::uint32_t block = team.block_rank() - 1, blocks = team.blocks() - 1,
                        quarter = blocks < 4 ? 1 : blocks / 4;
    if (blocks < 3) return {.sends = true, .makes = true, .receives = true, .block = block, .blocks = blocks};
    const std::uint32_t senders = crossing.first_circle().size == 1 ? 0 : quarter;
    const std::uint32_t receivers = crossing.second_circle().size == 1 ? 0 : quarter;
    const std::uint32_t makers = blocks - senders - receivers;
    if (block < senders) return {.sends = true, .makes = false, .receives = false, .block = block, .blocks = senders};
    if (block < senders + makers)
      return {.sends = false, .makes = true, .receives = false, .block = block - senders, .blocks = makers};
    return {.sends = false, .makes = false, .receives = true, .block = block - senders - makers, .blocks = receivers};
  }

  // Calls `serve(peer)` for this thread's peers in the circle; true in all threads of the block if all calls were true.
  template <Team T, class Serve>
  static WEFT_FN bool each_peer(T& team, const Session& s, const Circle& circle, Serve serve) {
    bool good = true;
    for (std::uint32_t turn = 1 + team.thread_rank(); good && turn < circle.size; turn += team.size())
      good = serve(circle.rank_in_turn(s.rank(), turn));
    return team.all(good);
  }
  // The same for calls that cannot fail. Behind the block's barrier.
  template <Team T, class Tell>
  static WEFT_FN void tell_peers(T& team, const Session& s, const Circle& circle, Tell tell) {
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
      each_pack<kPacksAtOnce>(
          team, packs, [&](std::uint32_t, std::uint32_t i, Pack& p) { p = from.get(cut.first_pack(chunk) + i); },
          always, [&](std::uint32_t, std::uint32_t i, const Pack& p) { team.put(to + i, p); });
    }
    team.sync();  // every thread has put its parts
    tell_peers(team, s, owners, [&](std::uint32_t owner) {
      if (chunk < cut.chunks_of(crossing.table.rows_of(owner))) flow.announce(team, owner, chunk);
    });
    return true;
  }

  // Sums a chunk of this rank's shard, and sends on what it becomes. A piece's sums are stored, and the last piece's
  // block makes the unit.
  template <Team T, class Table, class Cut>
  static WEFT_FN bool make(T& team, const Crossing<Table>& crossing, const Cut& sums, std::uint64_t chunk) {
    const Session& s = crossing.s;
    const Circle senders = crossing.first_circle(), takers = crossing.second_circle();
    if (chunk >= sums.chunks_of(crossing.own_rows())) return true;
    if (!each_peer(team, s, senders,
                   [&](std::uint32_t peer) { return crossing.summing.await_chunk(team, peer, chunk); })) {
      return false;
    }
    if (sums.pieces == 1 && !await_takers(team, crossing, chunk)) return false;
    const Pack* const slots = crossing.summing.slot(s.rank(), chunk, 0);
    const auto sum = [&](auto own, std::uint32_t i, std::uint32_t step, std::uint32_t left, auto& made) {
      sum_packs(team, s, senders, {slots + i, crossing.summing.chunk_packs(), step, left}, own, made);
    };
    if constexpr (Stage::kHasPieces) {
      if (sums.pieces != 1) {
        Stage::put_piece(team, crossing, sums, chunk, sum);
        team.sync();  // every thread has read its piece
        give_credits(team, crossing, chunk);
        if (chunk % sums.pieces == sums.pieces - 1) Stage::make_unit(team, crossing, chunk / sums.pieces);
        return true;
      }
    }
    const std::uint64_t to = crossing.sharing.slot_packs(chunk, s.rank());
    const auto slot_of = [&](std::uint32_t turn) {
      return crossing.sharing.area(takers.rank_in_turn(s.rank(), turn)) + to;
    };
    Pack* const nearest = takers.size == 1 ? nullptr : slot_of(1);
    Stage::make(team, crossing, sums, chunk, sum, [&](std::uint32_t i, const Pack& pack) {
      if (nearest != nullptr) team.put(nearest + i, pack);
      WEFT_NO_UNROLL
      for (std::uint32_t turn = 2; turn < takers.size; ++turn) team.put(slot_of(turn) + i, pack);
    });
    team.sync();  // every thread has read its parts, and put what goes on
    tell_peers(team, s, takers, [&](std::uint32_t taker) { crossing.sharing.announce(team, taker, chunk); });
    give_credits(team, crossing, chunk);
    return true;
  }
  template <Team T, class Table>
  static WEFT_FN bool await_takers(T& team, const Crossing<Table>& crossing, std::uint64_t chunk) {
    return each_peer(team, crossing.s, crossing.second_circle(),
                     [&](std::uint32_t taker) { return crossing.sharing.await_slot(team, taker, chunk); });
  }
  // Not by the threads that announce: a release takes a microsecond and more.
  template <Team T, class Table>
  static WEFT_FN void give_credits(T& team, const Crossing<Table>& crossing, std::uint64_t chunk) {
    const Circle senders = crossing.first_circle();
    const std::uint32_t thread = (team.thread_rank() + team.size() / 2) % team.size();
    for (std::uint32_t turn = 1 + thread; turn < senders.size; turn += team.size())
      crossing.summing.give_credit(team, senders.rank_in_turn(crossing.s.rank(), turn), chunk);
  }
  // Some packs of a chunk that each sender has put: i, i + step, …, of `left` that there are from i on. `slots`: pack i
  // of the first rank's slot.
  struct Parts {
    const Pack* slots;
    std::uint64_t slot_packs;
    std::uint32_t step, left;
  };
  // All of a thread's packs travel at once, from two ranks at a time. `own(k)`: this rank's pack i + k.
  template <std::uint32_t some, Team T, class Own>
  static WEFT_FN void sum_packs(T& team, const Session& s, const Circle& senders, const Parts& parts, Own own,
                                Pack (&made)[some]) {
    constexpr std::uint32_t batch = 2;
    typename R::Accumulator sum[some];
    WEFT_UNROLL
    for (std::uint32_t k = 0; k < some; ++k) sum[k] = R::start(ReduceOp::sum, senders.size);
    WEFT_NO_UNROLL
    for (std::uint32_t first = senders.first; first < senders.end(); first += batch) {
      Pack received[batch][some] = {};
      WEFT_UNROLL
      for (std::uint32_t b = 0; b < batch; ++b) {
        const std::uint32_t sender = first + b;
        if (sender >= senders.end()) break;
        const Pack* const from = parts.slots + sender * parts.slot_packs;
        WEFT_UNROLL
        for (std::uint32_t k = 0; k < some; ++k) {
          if (k != 0 && k * parts.step >= parts.left) break;
          received[b][k] = sender == s.rank() ? own(k * parts.step) : team.get(from + k * parts.step);
        }
      }
      WEFT_UNROLL
      for (std::uint32_t b = 0; b < batch; ++b) {
        if (first + b >= senders.end()) break;
        WEFT_UNROLL
        for (std::uint32_t k = 0; k < some; ++k) {
          if (first + b == senders.first) {
            R::begin(sum[k], received[b][k]);
          } else {
            R::add(sum[k], received[b][k]);
          }
        }
      }
    }
    WEFT_UNROLL
    for (std::uint32_t k = 0; k < some; ++k) made[k] = R::finish(sum[k]);
  }

  // Sends a piece of a unit on, by the block that has made it.
  template <Team T, class Table, class Cut>
  static WEFT_FN bool send_piece(T& team, const Crossing<Table>& crossing, const Cut& cut, std::uint64_t chunk) {
    const Session& s = crossing.s;
    const Circle takers = crossing.second_circle();
    const Flow& flow = crossing.sharing;
    if (chunk >= cut.chunks_of(crossing.own_rows())) return true;
    if (!await_takers(team, crossing, chunk)) return false;  // behind its barrier all threads have made the unit
    const std::uint32_t packs[] = {cut.packs_in(chunk, crossing.own_rows())};
    const auto from = Stage::shared(crossing, s.rank());
    each_pack<kPacksAtOnce>(
        team, packs, [&](std::uint32_t, std::uint32_t i, Pack& p) { p = from.get(cut.first_pack(chunk) + i); }, always,
        [&](std::uint32_t, std::uint32_t i, const Pack& p) {
          for (std::uint32_t turn = 1; turn < takers.size; ++turn)
            team.put(flow.slot(takers.rank_in_turn(s.rank(), turn), chunk, s.rank()) + i, p);
        });
    team.sync();  // every thread has put its part of the piece
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
      each_pack<kPacksAtOnce>(
          team, packs, [&](std::uint32_t, std::uint32_t i, Pack& p) { p = team.get(from + i); }, always,
          [&](std::uint32_t, std::uint32_t i, const Pack& p) { to.put(cut.first_pack(chunk) + i, p); });
    }
    team.sync();  // every thread has read its packs
    tell_peers(team, s, owners, [&](std::uint32_t owner) {
      if (chunk < cut.chunks_of(crossing.table.rows_of(owner))) flow.give_credit(team, owner, chunk);
    });
    return true;
  }

  // Waits for the credits that no later chunk has waited for.
  template <Team T, class Table, class Cut>
  static WEFT_FN bool drain(T& team, const Crossing<Table>& crossing, const Role& role, const Cut& sums,
                            const Cut& shares) {
    const Session& s = crossing.s;
    const auto each_last = [&](const Flow& flow, const Cut& cut, std::uint32_t peer, std::uint64_t rows) {
      const std::uint64_t chunks = cut.chunks_of(rows);
      for (std::uint64_t chunk = role.block; chunk < chunks; chunk += role.blocks) {
        if (flow.is_last_in_slot(chunk, chunks) && !flow.await_credit(team, peer, chunk)) return false;
      }
      return true;
    };
    return (!role.sends || each_peer(team, s, crossing.first_circle(),
                                     [&](std::uint32_t owner) {
                                       return each_last(crossing.summing, sums, owner, crossing.table.rows_of(owner));
                                     })) &&
           (!role.makes || each_peer(team, s, crossing.second_circle(), [&](std::uint32_t taker) {
             return each_last(crossing.sharing, shares, taker, crossing.own_rows());
           }));
  }
};

}  // namespace weft::detail
