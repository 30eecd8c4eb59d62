// Combine for any number of tokens: rows come back through a ring (ops/moe/ring.hpp). Sums are those of MoeCombine.
#pragma once

#include <cstdint>

#include "ops/moe/moe_combine.hpp"
#include "ops/moe/ring.hpp"

namespace weft::detail {

template <DataType type>
struct MoeRingCombine : MoeCombine<type, 4> {
  using Slots = MoeCombine<type, 4>;
  using Frame = MoeFrame<CombineWork>;
  using Work = CombineWork;
  using typename Slots::R;
  template <class T>
  using Loaded = typename Slots::template Loaded<T>;
  static constexpr int kMostThreads = 512;
  static constexpr BeginScope kBeginScope = BeginScope::block;
  static WEFT_FN std::uint32_t warp_groups(const Work& work) { return work.warp_groups; }
  static constexpr std::uint32_t kRanksAtOnce = 2, kPacksAtOnce = 4;

  struct ThreadPlan : Frame::ThreadPlan {
    RingRole role;
    RingBatches batches;
  };
  template <Team T>
  static WEFT_FN ThreadPlan thread_plan(T& team, const Call& call, const Work& work) {
    ThreadPlan p{Frame::thread_plan(team, call, work), {}, {}};
    if (team.block_rank() == 0) return p;
    p.role = ring_role(team, work.senders);
    p.batches = ring_batches(team, p.role);
    return p;
  }

  // As MoeCombine's.
  struct Prefetched {
    bool failed;
  };
  template <Team T>
  static WEFT_FN Prefetched prefetch(T& team, const Session&, const Work& work, const ThreadPlan&) {
    if (!Frame::is_there(work)) return {};
    const std::uint32_t block = team.block_rank() % (team.blocks() / work.warp_groups);
    const bool ended = team.load(&work.dispatch_admitted[block].value) == kEnded;
    return {!team.all(!ended)};  // warps that meet later go on or stop together
  }

  static WEFT_FN Ring ring(const Session& s, const Work& work) {
    return {&s, work.exchange.layout.results, work.exchange.shape.combine_packs};
  }

  template <int phase, Team T>
  static WEFT_FN bool run(T& team, const Session& s, const Work& work, const ThreadPlan& p, Prefetched& prefetched) {
    if (prefetched.failed) return false;
    if constexpr (phase == 0) {
      if (team.block_rank() == 0) {
        Frame::Handshake::send(team, s, p.header);
        return true;
      }
      return !p.role.sends || send(team, s, work, p, 0, ring(s, work).places());
    } else {
      if (team.block_rank() == 0) {
        if (!Frame::compare(team, s, p.header, work.source_wait_ns)) return false;
        if (team.thread_rank() == 0) work.exchange.tables.header->waiting = 0;
        return true;
      }
      const RoutingHeader& header = *work.exchange.tables.header;
      const std::uint32_t places = ring(s, work).places(), most = header.most_tokens, mine = header.tokens[s.rank()];
      if (!p.role.sends) return receive(team, s, work, p, 0, mine);
      if (!p.role.receives) return send(team, s, work, p, places, most);
      std::uint32_t sent = places;  // as in MoeRingDispatch
      for (std::uint32_t first = 0; first < most; first += p.batches.step) {
        const std::uint32_t end = first + p.batches.step;
        if (!team.all(receive(team, s, work, p, first, end < mine ? end : mine))) return false;
        if (!team.all(send(team, s, work, p, sent, first + p.batches.step + places))) return false;
        sent = first + p.batches.step + places;
      }
      return true;
    }
  }

  // Sends the rows of all ranks' tokens `begin` … `end` − 1, by ascending token.
  template <Team T>
  static WEFT_FN bool send(T& team, const Session& s, const Work& work, const ThreadPlan& p, std::uint32_t begin,
                           std::uint32_t end) {
    const std::uint32_t most = work.exchange.tables.header->most_tokens, step = p.batches.step;
    if (end > most) end = most;
    const auto unit_of = [&](std::uint32_t i) -> typename Slots::Unit {
      return {i / s.size(), rank_after(s.rank(), i % s.size(), s.size()), 0};
    };
    const std::uint32_t begin_unit = begin * s.size() + p.batches.first + p.batches.warp;
    // The table's entries are asked for two rows ahead, and the experts' rows one row ahead.
    Loaded<T> now = Slots::template load<T>(work, unit_of(begin_unit), p.batches.lane);
    Loaded<T> next = Slots::template load<T>(work, unit_of(begin_unit + step), p.batches.lane);
    for (std::uint32_t i = begin_unit; i < end * s.size(); i += step) {
      const typename Slots::Unit unit = unit_of(i);
      const Loaded<T> loaded = now;
      now = next;
      if (i + step < end * s.size()) prefetch_rows(team, work, p.batches.lane, unit_of(i + step), now);
      next = Slots::template load<T>(work, unit_of(i + 2 * step), p.batches.lane);
      if (unit.token >= loaded.owner_tokens || loaded.count == kNone) continue;  // kNone: the row did not come here
      if (!send_row(team, s, work, p.batches.lane, unit, loaded)) return false;
    }
    return true;
  }

  template <Team T>
  static WEFT_FN void prefetch_rows(T& team, const Work& work, std::uint32_t lane, const typename Slots::Unit& unit,
                                    Loaded<T>& loaded) {
    const ExchangeShape& shape = work.exchange.shape;
    if (unit.token >= loaded.owner_tokens || loaded.count == kNone) return;
    loaded.row.each(lane, loaded.count, [&](std::uint32_t, std::uint32_t row, std::uint32_t) {
      const std::uint32_t bytes = shape.combine_packs * sizeof(Pack);
      team.prefetch(static_cast<const std::byte*>(work.input) + std::uint64_t{row} * bytes, bytes);
    });
  }

  template <Team T>
  static WEFT_FN bool send_row(T& team, const Session& s, const Work& work, std::uint32_t lane,
                               const typename Slots::Unit& unit, const Loaded<T>& loaded) {
    const Ring ring = MoeRingCombine::ring(s, work);
    const std::uint32_t before = token_before(team, work, lane, unit, ring.places());
    if (before != kNone && !ring.await_credit(team, unit.owner, before)) return false;
    Pack* const to = ring.row(unit.owner, s.rank(), unit.token);
    Slots::template add_up<2>(team, work, 0, T::kLanes, lane, loaded, [&](std::uint32_t pack, const Pack& sum) {
      // As in slots, so that both give the same bits.
      using Wire = typename Slots::Wire;
      team.store(to + pack, Wire::template encode<T::kAtomicBytes>(sum, s.epoch));
    });
    team.sync_lanes();
    if (lane == 0) ring.announce(team, unit.owner, unit.token, true);
    return true;
  }

  // The token whose row lies in the place of the unit's; kNone: there is none. Tokens that did not come here have no
  // row. Nothing orders their credits and those of other rows, so a sender must not wait for them.
  template <Team T>
  static WEFT_FN std::uint32_t token_before(T& team, const Work& work, std::uint32_t lane,
                                            const typename Slots::Unit& unit, std::uint32_t places) {
    const std::uint32_t* const counts =
        work.exchange.tables.entry_counts + Slots::index_of(work.exchange.shape, {0, unit.owner, 0});
    for (std::uint32_t end = unit.token; end >= places; end -= places * T::kLanes) {
      const std::uint32_t back = places * (lane + 1);
      const bool came = back <= end && counts[end - back] != kNone;
      const std::uint32_t found = team.or_of(came ? 1u << lane : 0);
      if (found != 0) return end - places * (lowest_bit(found) + 1);
      if (end < places * T::kLanes) break;
    }
    return kNone;
  }

  // Adds up the rows of this rank's tokens `begin` … `end` − 1, by ascending token.
  template <Team T>
  static WEFT_FN bool receive(T& team, const Session& s, const Work& work, const ThreadPlan& p, std::uint32_t begin,
                              std::uint32_t end) {
    const std::uint32_t mine = work.exchange.tables.header->tokens[s.rank()];
    for (std::uint32_t token = begin + p.batches.first + p.batches.warp; token < end; token += p.batches.step) {
      const RankSet answering = work.exchange.tables.answering[token];
      const Ring ring = MoeRingCombine::ring(s, work);
      for (std::uint32_t rank = 0; rank < s.size(); ++rank) {
        bool has_row = false;
        if (answering.has(rank) && !ring.await_row(team, rank, token, has_row)) return false;
      }
      add_rows(team, s, work, p.batches.lane, token, answering);
      if (token + ring.places() >= mine) continue;
      team.sync_lanes();
      for (std::uint32_t rank = p.batches.lane; rank < s.size(); rank += T::kLanes) {
        if (answering.has(rank)) ring.give_credit(team, rank, token);
      }
    }
    return true;
  }

  template <Team T>
  static WEFT_FN void add_rows(T& team, const Session& s, const Work& work, std::uint32_t lane, std::uint32_t token,
                               const RankSet& answering) {
    const ExchangeShape& shape = work.exchange.shape;
    const Ring ring = MoeRingCombine::ring(s, work);
    const Packs output = Slots::row(shape, work.output, token);
    for (std::uint32_t first = lane; first < shape.combine_packs; first += kPacksAtOnce * T::kLanes) {
      typename R::Accumulator sum[kPacksAtOnce] = {};
      bool any = false;
      const auto take = [&](const Pack(&in)[kPacksAtOnce]) {
        WEFT_UNROLL
        for (std::uint32_t j = 0; j < kPacksAtOnce; ++j) {
          if (any) {
            R::add(sum[j], in[j]);
          } else {
            R::begin(sum[j], in[j]);
          }
        }
        any = true;
      };
      for (std::uint32_t rank = 0; rank < s.size(); rank += kRanksAtOnce) {
        Pack in[kRanksAtOnce][kPacksAtOnce] = {};
        WEFT_UNROLL
        for (std::uint32_t k = 0; k < kRanksAtOnce; ++k) {
          if (rank + k >= s.size() || !answering.has(rank + k)) continue;
          const Pack* const from = ring.row(s.rank(), rank + k, token);
          WEFT_UNROLL
          for (std::uint32_t j = 0; j < kPacksAtOnce; ++j) {
            const std::uint32_t pack = first + j * T::kLanes;
            if (pack < shape.combine_packs) in[k][j] = team.load(from + pack);
          }
        }
        WEFT_UNROLL
        for (std::uint32_t k = 0; k < kRanksAtOnce; ++k) {
          if (rank + k < s.size() && answering.has(rank + k)) take(in[k]);
        }
      }
      if (work.residual != nullptr) {
        Pack in[kPacksAtOnce] = {};
        WEFT_UNROLL
        for (std::uint32_t j = 0; j < kPacksAtOnce; ++j) {
          const std::uint32_t pack = first + j * T::kLanes;
          if (pack < shape.combine_packs) in[j] = Slots::row(shape, work.residual, token).load(pack);
        }
        take(in);
      }
      WEFT_UNROLL
      for (std::uint32_t j = 0; j < kPacksAtOnce; ++j) {
        const std::uint32_t pack = first + j * T::kLanes;
        if (pack < shape.combine_packs) output.store(pack, R::finish(sum[j]));
      }
    }
  }
};

}  // namespace weft::detail
