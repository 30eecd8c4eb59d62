// Crossings between attention groups and all ranks by push: a reduce-scatter and an all-gather, of which one is inside
// of each group and the other one is among all ranks. Sums are in rank order, so the bits are those of the two calls
// behind each other. (SGLang's dp_gather_partial and dp_reduce_scatter_tensor, sgl-project/sglang#8279.)
//
// Few rows go in one hop (one_hop_crossing.hpp), more in two: a rank sums its shard and sends the sums on, as in
// two-shot all-reduces. Shards that fit into a slot carry their own arrival; larger ones flow in chunks
// (flow_crossing.hpp).
#pragma once

#include <cstdint>

#include "ops/crossings/crossing_counts.hpp"
#include "ops/crossings/crossing_units.hpp"
#include "ops/crossings/flow_crossing.hpp"
#include "ops/crossings/one_hop_crossing.hpp"
#include "ops/moves/move_plan.hpp"

namespace weft::detail {

template <DataType type, std::uint32_t known_size, bool aligned16>
struct Crossing : CrossingUnits<type, known_size, aligned16> {
  using Units = CrossingUnits<type, known_size, aligned16>;
  using typename Units::Wire;
  using Units::kWirePacks;
  using Work = CrossingWork;
  using OneHop = OneHopCrossing<type, known_size, aligned16>;
  using Chunks = FlowCrossing<Reduction<type, Ops::sum, Plain>, aligned16>;
  using Handshake = detail::Handshake<known_size>;
  using Counts = CrossingCounts<known_size>;
  static constexpr int kPhases = 3;
  static constexpr int kMostThreads = kMoveThreads;
  static constexpr BeginScope kBeginScope = BeginScope::block;

  // As in moves/push_copy.hpp.
  static WEFT_FN std::uint32_t warp_groups(const Work& work) { return work.partition.shards.warp_groups; }

  // The input's first row is some rank's first, whatever the counts: a thread loads its pack there before it knows
  // them.
  struct ThreadPlan {
    HeaderAddress header;  // in the control block
    const void* source;    // whole rows: that pack, as far as there is room; else null
  };
  template <Team T>
  static WEFT_FN ThreadPlan thread_plan(T& team, const Call& call, const Work& work) {
    ThreadPlan p{};
    if (Handshake::in_control(team, call, p.header)) return p;
    if constexpr (aligned16) p.source = work.rows_from<true>(0, work.partition.input_rows()).find(share_of(team).first);
    team.settle(p.source);
    return p;
  }
  struct Prefetched {
    Counts counts;
    Pack first;
  };
  template <Team T>
  static WEFT_FN Prefetched prefetch(T& team, const Session&, const Work& work, const ThreadPlan& p) {
    return {.counts = Counts::prefetch(team, work.partition), .first = Rows<true>::load_found(p.source)};
  }

  template <int phase, Team T>
  static WEFT_FN bool run(T& team, const Session& s, const Work& work, const ThreadPlan& p, Prefetched& prefetched) {
    if constexpr (phase == 0) {
      const auto note = [&](const auto& counts, std::uint64_t) -> std::uint64_t {
        return team.block_rank() == 0 ? counts.hash(s.size()) : OneHop::most_units(work, counts, s.size());
      };
      if (!prefetched.counts.prepare(team, s, work.partition, note)) return false;
    }
    const auto& table = prefetched.counts.table(team, work.partition);
    const std::uint64_t word = prefetched.counts.noted(team, work.partition);
    if (team.block_rank() == 0) {
      if constexpr (phase < 2) return Handshake::template take_part<phase>(team, s, p.header, word);
      return true;
    }
    const bool one_hop = word * kWirePacks <= work.one_hop_packs;
    const bool one_go = work.units(table.most_rows()) * kWirePacks <= work.slot_packs;
    if constexpr (phase == 0) {
      if (one_hop) {
        OneHop::send(team, s, work, table, aligned16 ? &prefetched.first : nullptr);
      } else if (one_go) {
        Units::send_parts(team, s, work, table);
      }
      clear_pads(team, s, work, table);
      return true;
    } else if constexpr (phase == 1) {
      if (one_hop) return OneHop::receive(team, s, work, table);
      return one_go ? reduce(team, s, work, table) : Chunks::run(team, s, work, table);
    } else {
      return one_hop || !one_go ||
             Units::receive_shared(
                 team, s, work.partition.sharing(s.rank()), work.units(table.most_rows()),
                 [&](std::uint32_t owner) { return work.place_of<aligned16>(table, owner); },
                 [](const Rows<aligned16>& to, std::uint64_t i, const Pack& unit) { to.put(i, unit); });
    }
  }

 private:
  template <Team T, class Table>
  static WEFT_FN void clear_pads(T& team, const Session& s, const Work& work, const Table& table) {
    const Share share = share_of(team);
    const auto clear = [&](std::uint64_t begin, std::uint64_t end) {
      const Rows<aligned16> pads = work.rows_at<aligned16>(begin, end - begin);
      for (std::uint64_t i = share.first; i < pads.packs(); i += share.step) pads.put(i, Pack{});
    };
    work.partition.each_pads(table, s.rank(), clear);
  }

  // Sums this rank's shard, and sends the sums on.
  template <Team T, class Table>
  static WEFT_FN bool reduce(T& team, const Session& s, const Work& work, const Table& table) {
    const auto [first, step] = share_of(team);
    const Circle senders = work.partition.summing(s.rank()), takers = work.partition.sharing(s.rank());
    const Rows<aligned16> input = work.part_of<aligned16>(table, s.rank());
    const Rows<aligned16> output = work.place_of<aligned16>(table, s.rank());
    Pack* const slots = Units::slot(s, s.rank(), Units::parts(s), 0);
    for (std::uint64_t i = first; i < output.packs(); i += step) {
      Pack unit{};
      if (!Units::take_sum(team, s, senders, slots + i * kWirePacks, Units::parts(s).packs, input.get(i), unit))
        return false;
      for (std::uint32_t turn = 1; turn < takers.size; ++turn) {
        const std::uint32_t taker = takers.rank_in_turn(s.rank(), turn);
        Units::put_unit(team, s, Units::slot(s, taker, Units::sums(s), s.rank()) + i * kWirePacks, unit);
      }
      output.put(i, unit);
    }
    return true;
  }
};

}  // namespace weft::detail
