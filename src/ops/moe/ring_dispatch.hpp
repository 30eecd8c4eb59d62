// Dispatch for any number of tokens: rows flow through a ring (ops/moe/ring.hpp) straight into the output. The routing
// of a token travels behind its row, and only the counts go ahead. So buffers do not grow with the number of tokens.
//
// The rows of a token and their places are those of MoeDispatch.
#pragma once

#include <cstdint>

#include "ops/moe/moe_dispatch.hpp"
#include "ops/moe/ring.hpp"
#include "ops/moe/ring_routing.hpp"

namespace weft::detail {

template <class Row>
struct MoeRingDispatch : DispatchControl {
  using Frame = MoeFrame<DispatchWork>;
  static constexpr int kMostThreads = 512;
  static constexpr BeginScope kBeginScope = BeginScope::block;
  static WEFT_FN std::uint32_t warp_groups(const Work& work) { return work.warp_groups; }
  // Of a row, that a lane handles at once.
  template <class T>
  static constexpr std::uint32_t kItemsAtOnce = T::kLanes == 1 ? 1 : 4;

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

  struct Prefetched {
    std::uint32_t waiting;  // as in DispatchControl
    std::uint32_t tallied;  // entries in the tally of a block that sends
  };
  template <Team T>
  static WEFT_FN Prefetched prefetch(T& team, const Session&, const Work& work, const ThreadPlan&) {
    return {.waiting = read_waiting(team, work), .tallied = 0};
  }

  static WEFT_FN Ring ring(const Session& s, const Work& work) {
    return {&s, work.exchange.layout.rows, work.exchange.shape.ring_packs};
  }

  template <int phase, Team T>
  static WEFT_FN bool run(T& team, const Session& s, const Work& work, const ThreadPlan& p, Prefetched& state) {
    if constexpr (phase == 0) {
      if (team.block_rank() == 0) {
        if (!begin(team, s, work, p.header, state.waiting)) return false;
        send_all_counts(team, s, work);
        return true;
      }
      if (!p.role.sends) return true;
      clear_tally(team, work.exchange.shape.replicas);
      return send(team, s, work, p, state, 0, ring(s, work).places());
    } else {
      if (team.block_rank() == 0) return control_receive(team, s, work, p.header);
      if (p.role.receives) return receive_all(team, s, work, p, state);
      return send(team, s, work, p, state, ring(s, work).places(), work.tokens);
    }
  }

  // Sends the tokens of the batches whose first token of this block is from `begin` on, below `end`.
  template <Team T>
  static WEFT_FN bool send(T& team, const Session& s, const Work& work, const ThreadPlan& p, Prefetched& state,
                           std::uint32_t begin, std::uint32_t end) {
    const ExchangeShape& shape = work.exchange.shape;
    const RingBatches& batches = p.batches;
    if (end > work.tokens) end = work.tokens;
    for (std::uint32_t first = batches.from(begin); first < end; first += batches.step) {
      tally_entries(team, TopK::of(work, s.rank()), state.tallied, first * shape.top_k);
      state.tallied = first * shape.top_k;
      team.sync();
      const std::uint32_t token = first + batches.warp;
      const bool one = token < work.tokens;
      SentEntries<T> entries{};
      if (one) entries = find_entries(team, s, work, batches.lane, first, token);
      const bool free = !one || ring(s, work).await_places(team, batches.lane, token);
      if (!team.all(free)) return false;  // from here on nobody reads the tally
      if (one) send_row(team, s, work, batches.lane, token, entries);
    }
    return true;
  }

  template <Team T>
  static WEFT_FN void send_row(T& team, const Session& s, const Work& work, std::uint32_t lane, std::uint32_t token,
                               SentEntries<T>& entries) {
    constexpr std::uint32_t kAtOnce = kItemsAtOnce<T>;
    const ExchangeShape& shape = work.exchange.shape;
    const Ring ring = MoeRingDispatch::ring(s, work);
    if (lane == 0) work.exchange.tables.answering[token] = entries.to;
    const std::uint32_t count = Row::template items<T>(shape);
    for (std::uint32_t first = lane; first < count + lane; first += kAtOnce * T::kLanes) {
      typename Row::template Given<T> given[kAtOnce];
      WEFT_UNROLL
      for (std::uint32_t j = 0; j < kAtOnce; ++j) {
        given[j] = Row::template read<T>(work, token, first + j * T::kLanes);
      }
      WEFT_UNROLL
      for (std::uint32_t j = 0; j < kAtOnce; ++j) {
        const std::uint32_t item = first + j * T::kLanes;
        const typename Row::template Moving<T> moving = Row::encode(team, shape, given[j]);
        for (std::uint32_t turn = 0; turn < s.size() && item < count; ++turn) {
          const std::uint32_t rank = rank_after(s.rank(), turn, s.size());
          if (entries.to.has(rank)) Row::send(team, shape, ring.row(rank, s.rank(), token), item, moving);
        }
      }
    }
    for (std::uint32_t rank = 0; rank < s.size(); ++rank) {
      if (entries.to.has(rank)) send_entries(team, shape, lane, rank, ring.row(rank, s.rank(), token), entries);
    }
    team.sync_lanes();
    for (std::uint32_t rank = lane; rank < s.size(); rank += T::kLanes) {
      ring.announce(team, rank, token, entries.to.has(rank));
    }
  }

  template <Team T>
  static WEFT_FN bool receive_all(T& team, const Session& s, const Work& work, const ThreadPlan& p, Prefetched& state) {
    SenderTokens<T> tokens;
    const bool known = tokens.know_all(team, s, work.exchange, p.batches.lane);
    if (p.role.sends ? !team.all(known) : !known) return false;
    std::uint32_t most = 0;
    for (std::uint32_t rank = 0; rank < s.size(); ++rank) {
      const std::uint32_t count = tokens.count.get(team, rank);
      if (count > most) most = count;
    }
    if (!p.role.sends) return receive(team, s, work, p, tokens, 0, most);
    const std::uint32_t places = ring(s, work).places();
    // Tokens. A round sends those whose places its rows have freed. They include all of the next round, because all
    // blocks together have no more warps than the ring has places.
    std::uint32_t sent = places;
    for (std::uint32_t first = 0; first < most; first += p.batches.step) {
      if (!team.all(receive(team, s, work, p, tokens, first, first + p.batches.step))) return false;
      if (!send(team, s, work, p, state, sent, first + p.batches.step + places)) return false;
      sent = first + p.batches.step + places;
    }
    return true;
  }

  // Receives the rows of the tokens `begin` … `end` − 1 of all ranks, by ascending token.
  template <Team T>
  static WEFT_FN bool receive(T& team, const Session& s, const Work& work, const ThreadPlan& p,
                              const SenderTokens<T>& tokens, std::uint32_t begin, std::uint32_t end) {
    const std::uint32_t step = p.batches.step;
    for (std::uint32_t i = begin * s.size() + p.batches.first + p.batches.warp; i < end * s.size(); i += step) {
      const std::uint32_t token = i / s.size(), sender = rank_after(s.rank(), i % s.size(), s.size());
      const std::uint32_t count = tokens.count.get(team, sender);
      if (token < count && !receive_row(team, s, work, p.batches.lane, sender, token, count)) return false;
    }
    return true;
  }

  template <Team T>
  static WEFT_FN bool receive_row(T& team, const Session& s, const Work& work, std::uint32_t lane, std::uint32_t sender,
                                  std::uint32_t token, std::uint32_t tokens) {
    const ExchangeShape& shape = work.exchange.shape;
    const Ring ring = MoeRingDispatch::ring(s, work);
    bool has_row = false;
    if (!ring.await_row(team, sender, token, has_row)) return false;
    Pack* const row = ring.row(s.rank(), sender, token);
    Entries<T> entries{};
    entries.local.each(lane, shape.top_k, [](std::uint32_t, std::uint32_t& local, std::uint32_t) { local = kNone; });
    if (has_row) {
      entries = read_entries(team, shape, lane, row);
      if (!place(team, s, work.exchange, lane, sender, token, entries, [] {})) return false;
      put_row(team, work, lane, row, entries);
    }
    if (token + ring.places() < tokens) {
      team.sync_lanes();
      if (lane == 0) ring.give_credit(team, sender, token);
    }
    note_entries(team, work, lane, sender, token, entries);
    return true;
  }

  template <Team T>
  static WEFT_FN void put_row(T& team, const Work& work, std::uint32_t lane, Pack* row, const Entries<T>& entries) {
    constexpr std::uint32_t kAtOnce = kItemsAtOnce<T>;
    const ExchangeShape& shape = work.exchange.shape;
    const std::uint32_t count = Row::template items<T>(shape);
    for (std::uint32_t first = lane; first < count + lane; first += kAtOnce * T::kLanes) {
      typename Row::template Moving<T> moving[kAtOnce] = {};
      WEFT_UNROLL
      for (std::uint32_t j = 0; j < kAtOnce; ++j) {
        if (first + j * T::kLanes < count) Row::load(team, shape, row, first + j * T::kLanes, moving[j]);
      }
      WEFT_UNROLL
      for (std::uint32_t j = 0; j < kAtOnce; ++j) Row::template decode<T>(moving[j]);
      for (std::uint32_t left = entries.kept; left != 0;) {
        std::uint32_t to[Row::kRowsAtOnce];  // kNone: no more
        WEFT_UNROLL
        for (std::uint32_t i = 0; i < Row::kRowsAtOnce; ++i) {
          const std::uint32_t place = entries.row.get(team, left != 0 ? lowest_bit(left) : 0);
          to[i] = left != 0 ? place : kNone;
          left &= left - 1;
        }
        WEFT_UNROLL
        for (std::uint32_t j = 0; j < kAtOnce; ++j) {
          if (first + j * T::kLanes < count) Row::template put<T>(work, to, first + j * T::kLanes, moving[j]);
        }
      }
    }
  }
};

// Scales in the order that the shape names. One instance serves both orders, because the order is looked up once a row.
template <DataType type>
struct RingCastRow : CastRow<type, ScaleOrder::rows> {
  using ByRows = CastRow<type, ScaleOrder::rows>;
  using ByColumns = CastRow<type, ScaleOrder::columns>;
  template <class T>
  static WEFT_FN void put(const DispatchWork& work, const std::uint32_t (&to)[ByRows::kRowsAtOnce], std::uint32_t item,
                          const typename ByRows::template Moving<T>& moving) {
    if (work.exchange.shape.scale_order == ScaleOrder::rows) {
      ByRows::template put<T>(work, to, item, moving);
    } else {
      ByColumns::template put<T>(work, to, item, moving);
    }
  }
};

}  // namespace weft::detail
