// Crossings (ops/crossings/crossing.hpp) whose sums are normed on the way: the owner of a shard adds the residual,
// norms the rows, perhaps casts them, and sends on what has become of them. (The step between attention and
// feed-forward layers of SGLang's DP attention, sgl-project/sglang#8279, which takes a reduce-scatter, a norm and a
// gather.)
//
// The hops are the crossing's. Residuals stay with a shard's owner, which alone has all parts of its sums: so a row is
// normed once, where a norm behind a gather would be made by all ranks. A call among ranks that share no rows has one
// hop: nothing is summed in a gather, or nothing is shared in a scatter. Few rows of larger groups go in one hop, too
// (normed_one_hop.hpp).
#pragma once

#include <cstdint>

#include "ops/crossings/crossing_counts.hpp"
#include "ops/crossings/crossing_units.hpp"
#include "ops/crossings/flow_crossing.hpp"
#include "ops/norm/rms_norm.hpp"
#include "ops/normed_crossings/normed_flow.hpp"
#include "ops/normed_crossings/normed_one_hop.hpp"

namespace weft::detail {

// `flows`: shards may be too large for slots. Few rows are slower there. Else threads are few and hold several packs of
// a row: all warps of a block share four schedulers, so every instruction that no pack needs counts once a warp.
template <DataType type, std::uint32_t known_size, bool casts, bool flows, bool gamma_f32 = false>
struct NormedCrossing : CrossingUnits<type, known_size, true> {
  using Units = CrossingUnits<type, known_size, true>;
  using typename Units::R;
  using typename Units::Wire;
  using Norm = RmsNorm<R, casts, gamma_f32>;
  using Work = NormedCrossingWork;
  using OneHop = NormedOneHop<type, known_size, casts, flows ? kMostHeldInOneHop : kHeldWithoutChunks, gamma_f32>;
  using Stage = NormStage<type, casts, gamma_f32>;
  using Chunks = FlowCrossing<Reduction<type, Ops::sum, Plain>, true, Stage>;
  using Handshake = detail::Handshake<known_size>;
  using Counts = CrossingCounts<known_size>;
  static_assert(Units::kWirePacks == 1);
  static constexpr int kPhases = 3;
  static constexpr int kMostThreads = most_threads_normed(flows);
  static_assert(kMostThreads <= static_cast<int>(kMostWarpGroups * kWarpGroupThreads));  // each part has scratch words
  static constexpr BeginScope kBeginScope = BeginScope::block;

  static WEFT_FN std::uint32_t warp_groups(const Work& work) requires flows {
    return work.shards.partition.shards.warp_groups;
  }

  // As in Crossing.
  struct ThreadPlan {
    HeaderAddress header;  // in the control block
    const void* source;    // the first pack of the input that this thread sends in one hop, or null
  };
  template <Team T>
  static WEFT_FN ThreadPlan thread_plan(T& team, const Call& call, const Work& work) {
    ThreadPlan p{};
    if (Handshake::in_control(team, call, p.header)) return p;
    p.source = work.shards.rows_from<true>(0, work.shards.partition.input_rows()).find(share_of(team).first);
    team.settle(p.source);
    return p;
  }
  using Weights = typename Norm::template FirstWeights<flows ? 2 : kHeldWithoutChunks>;
  struct Prefetched {
    Counts counts;
    Pack first;
    Weights weights;
  };
  template <Team T>
  static WEFT_FN Prefetched prefetch(T& team, const Session&, const Work& work, const ThreadPlan& p) {
    return {.counts = Counts::prefetch(team, work.shards.partition),
            .first = Rows<true>::load_found(p.source),
            .weights = Norm::template first_weights<Weights::kPacks>(team, work.norm, 0)};
  }

  template <int phase, Team T>
  static WEFT_FN bool run(T& team, const Session& s, const Work& work, const ThreadPlan& p, Prefetched& prefetched) {
    const CrossingPartition& partition = work.shards.partition;
    if constexpr (phase == 0) {
      const auto note = [&](const auto& counts, std::uint64_t most) -> std::uint64_t {
        return team.block_rank() == 0 ? counts.hash(s.size()) : OneHop::most_packs(work, counts, most, s.size());
      };
      if (!prefetched.counts.prepare(team, s, partition, note)) return false;
    }
    const auto& table = prefetched.counts.table(team, partition);
    const std::uint64_t word = prefetched.counts.noted(team, partition);
    if (team.block_rank() == 0) {
      if constexpr (phase < 2) return Handshake::template take_part<phase>(team, s, p.header, word);
      return true;
    }
    // Either hop's shards must fit.
    const bool one_go = table.most_rows() * work.most_row_packs() <= work.shards.slot_packs;
    const bool one_hop = word <= work.shards.one_hop_packs;
    if constexpr (phase == 0) {
      if (one_hop) {
        OneHop::send(team, s, work, table, &prefetched.first);
      } else if (one_go) {
        Units::send_parts(team, s, work.shards, table);
      }
      clear_pads(team, s, work, table);
      return true;
    } else if constexpr (phase == 1) {
      if (one_hop) return OneHop::receive(team, s, work, table, prefetched.weights);
      if constexpr (flows) {
        if (!one_go) return Chunks::run(team, s, work, table);
      }
      return norm(team, s, work, table, prefetched);
    } else {
      return one_hop || !one_go ||
             Units::receive_shared(
                 team, s, partition.sharing(s.rank()), table.most_rows() * work.shape.packs(),
                 [&](std::uint32_t owner) {
                   return Place{table.rows_of(owner) * work.shape.packs(), partition.output_row(table, owner)};
                 },
                 [&](const Place& to, std::uint64_t i, const Pack& payload) {
                   NormedStream<casts>{work.outputs<casts>(), to.row}.put(i, payload);
                 });
    }
  }

 private:
  // A shard in the outputs: its packs, and its first row.
  struct Place {
    std::uint64_t count, row;
    WEFT_FN std::uint64_t packs() const { return count; }
  };

  template <Team T, class Table>
  static WEFT_FN void clear_pads(T& team, const Session& s, const Work& work, const Table& table) {
    const Share share = share_of(team);
    work.shards.partition.each_pads(table, s.rank(), [&](std::uint64_t begin, std::uint64_t end) {
      const NormedStream<casts> pads{work.outputs<casts>(), begin};
      const std::uint64_t packs = (end - begin) * work.shape.packs();
      for (std::uint64_t i = share.first; i < packs; i += share.step) pads.put(i, Pack{});
    });
  }

  // Sums and norms the rows of this rank's shard, and sends them on. A block serves a row.
  template <Team T, class Table>
  static WEFT_FN bool norm(T& team, const Session& s, const Work& work, const Table& table,
                           const Prefetched& prefetched) {
    const auto serve = [&]<std::uint32_t held>() { return norm_rows<held>(team, s, work, table, prefetched.weights); };
    if constexpr (flows) {
      return Norm::with_width(team, work.norm, serve);
    } else {
      return serve.template operator()<kHeldWithoutChunks>();
    }
  }
  template <std::uint32_t held, Team T, class Table>
  static WEFT_FN bool norm_rows(T& team, const Session& s, const Work& work, const Table& table,
                                const Weights& weights) {
    const CrossingPartition& partition = work.shards.partition;
    const Circle senders = partition.summing(s.rank()), takers = partition.sharing(s.rank());
    const std::uint64_t first_part = partition.input_row(table, s.rank());
    const std::uint64_t first_row = partition.output_row(table, s.rank());
    const NormWork own = work.norm_at(first_row);
    Pack* const slots = Units::slot(s, s.rank(), Units::parts(s), 0);
    const auto rows = static_cast<std::uint32_t>(table.rows_of(s.rank()));
    typename Units::template SendsOn<T> send{team, s, takers, Units::sums(s), 0};
    send.find_slots();
    std::uint32_t uses = 0;
    for (std::uint32_t row = team.block_rank() - 1; row < rows; row += team.blocks() - 1) {
      const std::uint64_t begin = std::uint64_t{row} * own.row_packs;
      const typename Norm::Packs own_part(work.row_of_input(first_part + row), 0);
      const auto take = [&](std::uint32_t, std::uint32_t i, auto& sums) {
        constexpr std::uint32_t some = sizeof(sums) / sizeof(Pack);
        const typename Units::Taken taken{.step = team.size(), .left = own.row_packs - i};
        Pack mine[some] = {};
        WEFT_UNROLL
        for (std::uint32_t k = 0; k < some; ++k) {
          if (taken.exists(k)) mine[k] = own_part.load(i + k * taken.step);
        }
        if (senders.size == 1) {
          WEFT_UNROLL
          for (std::uint32_t k = 0; k < some; ++k) sums[k] = own.residual != nullptr ? mine[k] : Norm::rounded(mine[k]);
          return true;
        }
        return Units::template take_sums<some>(team, s, senders, slots + begin + i, Units::parts(s).packs, taken, mine,
                                               sums);
      };
      send.begin = std::uint64_t{row} * work.shape.packs();
      if (!Norm::template finish<held>(team, own, row, weights, uses, take, send)) return false;
      if constexpr (casts) {
        if (takers.size == 1 || work.shape.cast == 0) continue;
        team.sync();  // the cast row is stored
        for (std::uint32_t i = work.shape.normed + team.thread_rank(); i < work.shape.packs(); i += team.size())
          send(i, work.outputs<casts>().get(first_row + row, i));
      }
    }
    return true;
  }
};

}  // namespace weft::detail
