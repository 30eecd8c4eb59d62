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
  // Items that a lane handles at once: 128 bytes of the input, or a single item.
  template <class T>
  static constexpr std::uint32_t kItemsAtOnce = T::kLanes == 1 || sizeof(typename Row::template Given<T>) > 32
                                                    ? 1
                                                    : 128 / sizeof(typename Row::template Given<T>);

  struct ThreadPlan : Frame::ThreadPlan {
    RingRole role;
    RingBatches batches;
  };
  template <Team T>
  static WEFT_FN ThreadPlan thread_plan(T& team, const Call& call, const Work& work) {
    ThreadPlan p{Frame::thread_plan(team, call, work), {}, {}};
    if (team.block_rank() == 0) return p;
    p.role = ring_role(team, work.senders);
    if (!work.phases.has(0)) p.role.sends = false;  // a separate wait: all tokens have places of their own
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
        // The group counts together: it goes on or stops as one.
        if (!team.all(begin(team, s, work, p.header, state.waiting))) return false;
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

  // A lane's next items of a row. They are asked for long before they are used.
  template <class T>
  struct Given {
    typename Row::template Given<T> item[kItemsAtOnce<T>];
  };
  template <Team T>
  static WEFT_FN Given<T> ask_given(const Work& work, std::uint32_t token, std::uint32_t first) {
    Given<T> given;
    WEFT_UNROLL
    for (std::uint32_t j = 0; j < kItemsAtOnce<T>; ++j) {
      given.item[j] = Row::template read<T>(work, token, first + j * T::kLanes);
    }
    return given;
  }

  // Sends the tokens of the batches whose first token of this block is from `begin` on, below `end`. A row is announced
  // one batch later: the release then waits no longer for stores that are still under way.
  template <Team T>
  static WEFT_FN bool send(T& team, const Session& s, const Work& work, const ThreadPlan& p, Prefetched& state,
                           std::uint32_t begin, std::uint32_t end) {
    const ExchangeShape& shape = work.exchange.shape;
    const RingBatches& batches = p.batches;
    std::uint32_t last = kNone;  // token that is not announced
    RankSet last_to{};
    if (end > work.tokens) end = work.tokens;
    for (std::uint32_t first = batches.from(begin); first < end; first += batches.step) {
      const std::uint32_t token = first + batches.warp;
      const bool one = token < work.tokens;
      Given<T> given{};
      if (one) given = ask_given<T>(work, token, batches.lane);
      tally_entries(team, TopK::of(work, s.rank()), state.tallied, first * shape.top_k);
      state.tallied = first * shape.top_k;
      team.sync();
      SentEntries<T> entries{};
      if (one) entries = find_entries(team, s, work, batches.lane, first, token);
      announce(team, s, work, batches.lane, last, last_to);
      const bool free = !one || ring(s, work).await_places(team, batches.lane, token);
      if (!team.all(free)) return false;  // from here on nobody reads the tally
      last = one ? token : kNone;
      last_to = entries.to;
      if (one) send_row(team, s, work, batches.lane, token, given, entries);
    }
    announce(team, s, work, batches.lane, last, last_to);
    return true;
  }

  // Tells all ranks that the token's row is in place, or that they get none.
  template <Team T>
  static WEFT_FN void announce(T& team, const Session& s, const Work& work, std::uint32_t lane, std::uint32_t token,
                               const RankSet& to) {
    if (token == kNone) return;
    team.sync_lanes();
    for (std::uint32_t rank = lane; rank < s.size(); rank += T::kLanes) {
      ring(s, work).announce(team, rank, token, to.has(rank));
    }
  }

  template <Team T>
  static WEFT_FN void send_row(T& team, const Session& s, const Work& work, std::uint32_t lane, std::uint32_t token,
                               Given<T> given, SentEntries<T>& entries) {
    constexpr std::uint32_t kAtOnce = kItemsAtOnce<T>;
    const ExchangeShape& shape = work.exchange.shape;
    const Ring ring = MoeRingDispatch::ring(s, work);
    if (lane == 0) work.exchange.tables.answering[token] = entries.to;
    for (std::uint32_t rank = 0; rank < s.size(); ++rank) {
      if (entries.to.has(rank)) send_entries(team, shape, lane, rank, ring.row(rank, s.rank(), token), entries);
    }
    const std::uint32_t count = Row::template items<T>(shape);
    for (std::uint32_t first = lane; first < count + lane; first += kAtOnce * T::kLanes) {
      const Given<T> now = given;
      given = ask_given<T>(work, token, first + kAtOnce * T::kLanes);
      typename Row::template Moving<T> moving[kAtOnce];
      WEFT_UNROLL
      for (std::uint32_t j = 0; j < kAtOnce; ++j) moving[j] = Row::encode(team, shape, now.item[j]);
      for (std::uint32_t turn = 0; turn < s.size(); ++turn) {
        const std::uint32_t rank = rank_after(s.rank(), turn, s.size());
        if (!entries.to.has(rank)) continue;
        Pack* const row = ring.row(rank, s.rank(), token);
        WEFT_UNROLL
        for (std::uint32_t j = 0; j < kAtOnce; ++j) {
          const std::uint32_t item = first + j * T::kLanes;
          if (item < count) Row::send(team, shape, row, item, moving[j]);
        }
      }
    }
  }

  template <Team T>
  static WEFT_FN bool receive_all(T& team, const Session& s, const Work& work, const ThreadPlan& p, Prefetched& state) {
    SenderTokens<T> tokens;
    const bool known = tokens.know_all(team, s, work.exchange, p.batches.lane);
    if (!team.all(known)) return false;
    std::uint32_t most = 0;
    for (std::uint32_t rank = 0; rank < s.size(); ++rank) {
      const std::uint32_t count = tokens.count.get(team, rank);
      if (count > most) most = count;
    }
    if (!p.role.sends) {
      const bool has_table = fits_table<T>(s, work.exchange.shape);
      if (has_table && !team.all(fill_table(team, s, work.exchange))) return false;
      return receive(team, s, work, p, tokens, 0, most, has_table);
    }
    const std::uint32_t places = ring(s, work).places();
    // Tokens. A round sends those whose places its rows have freed. They include all of the next round, because all
    // blocks together have no more warps than the ring has places.
    std::uint32_t sent = places;
    for (std::uint32_t first = 0; first < most; first += p.batches.step) {
      if (!team.all(receive(team, s, work, p, tokens, first, first + p.batches.step, false))) return false;
      if (!send(team, s, work, p, state, sent, first + p.batches.step + places)) return false;
      sent = first + p.batches.step + places;
    }
    return true;
  }

  // Receives the rows of the tokens `begin` … `end` − 1 of all ranks, by ascending token.
  template <Team T>
  static WEFT_FN bool receive(T& team, const Session& s, const Work& work, const ThreadPlan& p,
                              const SenderTokens<T>& tokens, std::uint32_t begin, std::uint32_t end, bool has_table) {
    const std::uint32_t step = p.batches.step;
    for (std::uint32_t i = begin * s.size() + p.batches.first + p.batches.warp; i < end * s.size(); i += step) {
      const std::uint32_t token = i / s.size(), sender = rank_after(s.rank(), i % s.size(), s.size());
      const std::uint32_t count = tokens.count.get(team, sender);
      if (token >= count) continue;
      if (!receive_row(team, s, work, p.batches.lane, sender, token, count, has_table)) return false;
    }
    return true;
  }

  // A lane's next items of a row that has come.
  template <class T>
  struct Came {
    typename Row::template Moving<T> item[kItemsAtOnce<T>];
  };
  template <Team T>
  static WEFT_FN Came<T> ask_came(T& team, const ExchangeShape& shape, Pack* row, std::uint32_t first,
                                  std::uint32_t count) {
    Came<T> came{};
    WEFT_UNROLL
    for (std::uint32_t j = 0; j < kItemsAtOnce<T>; ++j) {
      if (first + j * T::kLanes < count) Row::load(team, shape, row, first + j * T::kLanes, came.item[j]);
    }
    return came;
  }

  template <Team T>
  static WEFT_FN bool receive_row(T& team, const Session& s, const Work& work, std::uint32_t lane, std::uint32_t sender,
                                  std::uint32_t token, std::uint32_t tokens, bool has_table) {
    const ExchangeShape& shape = work.exchange.shape;
    const Ring ring = MoeRingDispatch::ring(s, work);
    bool has_row = false;
    if (!ring.await_row(team, sender, token, has_row)) return false;
    Pack* const row = ring.row(s.rank(), sender, token);
    Entries<T> entries{};
    entries.local.each(lane, shape.top_k, [](std::uint32_t, std::uint32_t& local, std::uint32_t) { local = kNone; });
    if (has_row) {
      const Came<T> came = ask_came(team, shape, row, lane, Row::template items<T>(shape));
      entries = read_entries(team, shape, lane, row);
      if (has_table) {
        place_by_table(team, s, work.exchange, lane, sender, entries);
      } else if (!place(team, s, work.exchange, lane, sender, token, entries, [] {})) {
        return false;
      }
      put_row(team, work, lane, row, came, entries);
    }
    if (token + ring.places() < tokens) {
      team.sync_lanes();
      if (lane == 0) ring.give_credit(team, sender, token);
    }
    note_entries(team, work, lane, sender, token, entries);
    return true;
  }

  template <Team T>
  static WEFT_FN void put_row(T& team, const Work& work, std::uint32_t lane, Pack* row, Came<T> came,
                              const Entries<T>& entries) {
    constexpr std::uint32_t kAtOnce = kItemsAtOnce<T>;
    const ExchangeShape& shape = work.exchange.shape;
    const std::uint32_t count = Row::template items<T>(shape);
    for (std::uint32_t first = lane; first < count + lane; first += kAtOnce * T::kLanes) {
      Came<T> now = came;
      came = ask_came(team, shape, row, first + kAtOnce * T::kLanes, count);
      WEFT_UNROLL
      for (std::uint32_t j = 0; j < kAtOnce; ++j) Row::template decode<T>(now.item[j]);
      for (std::uint32_t left = entries.kept; left != 0; left &= left - 1) {
        Row::template put_items<T>(work, entries.row.get(team, lowest_bit(left)), first, count, now.item);
      }
    }
  }
};

}  // namespace weft::detail
