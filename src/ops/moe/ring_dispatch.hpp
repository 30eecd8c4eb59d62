// Dispatch for any number of tokens: rows flow through a ring (ops/moe/ring.hpp) straight into the output. The routing
// of a token travels before its row, and only the counts go ahead. So buffers do not grow with the number of tokens.
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
  static constexpr int kMostThreads = 768;
  static constexpr bool kStaged = true;
  static constexpr BeginScope kBeginScope = BeginScope::block;
  static WEFT_FN std::uint32_t warp_groups(const Work& work) { return work.warp_groups; }
  template <class T>
  static constexpr std::uint32_t kItemsAtOnce = Row::template kItemsAtOnce<T>;
  template <class T>
  static constexpr std::uint32_t kStepItems = kItemsAtOnce<T>* T::kLanes;
  template <class T>
  static constexpr std::uint32_t kPieceItems = items_of_piece<T>(Row::template kItemPacks<T>) * T::kLanes;
  template <class T>
  static constexpr std::uint32_t kPiecePacks = kPieceItems<T>* Row::template kItemPacks<T>;
  template <class T>
  static constexpr std::uint32_t kPiecePlaces = T::kStagePlaces - 1;  // of a stage; the other one is for heads

  using ThreadPlan = RingPlan<Frame>;
  template <StagedTeam T>
  static WEFT_FN ThreadPlan thread_plan(T& team, const Call& call, const Work& work) {
    static_assert(kPiecePacks<T> * sizeof(Pack) <= T::kStageBytes);
    ThreadPlan p = ring_plan<Frame>(team, call, work);
    if (!work.phases.has(0)) p.role.sends = false;  // a separate wait: all tokens have places of their own
    return p;
  }

  struct Prefetched {
    std::uint32_t waiting;  // as in DispatchControl
    std::uint32_t tallied;  // entries in the tally of a block that sends
  };
  template <Team T>
  static WEFT_FN Prefetched prefetch(T& team, const Session&, const Work& work, const ThreadPlan&) {
    if (team.block_rank() != 0) team.begin_stage();
    return {.waiting = read_waiting(team, work), .tallied = 0};
  }

  static WEFT_FN Ring ring(const Session& s, const Work& work) {
    return {&s, work.exchange.layout.rows, work.exchange.shape.ring_stride};
  }

  template <int phase, Team T>
  static WEFT_FN bool run(T& team, const Session& s, const Work& work, const ThreadPlan& p, Prefetched& state) {
    if (team.block_rank() != 0) {
      const bool good = move<phase>(team, s, work, p, state);
      team.end_stage();
      return good;
    }
    if constexpr (phase == 0) {
      // The group counts together: it goes on or stops as one.
      if (!team.all(begin(team, s, work, p.header, state.waiting))) return false;
      send_all_counts(team, s, work);
      return true;
    } else {
      return control_receive(team, s, work, p.header);
    }
  }
  template <int phase, Team T>
  static WEFT_FN bool move(T& team, const Session& s, const Work& work, const ThreadPlan& p, Prefetched& state) {
    if constexpr (phase == 0) {
      if (!p.role.sends) return true;
      clear_tally(team, work.exchange.shape.replicas);
      return send(team, s, work, p, state, 0, p.role.receives ? ring(s, work).places() : work.tokens);
    } else {
      return !p.role.receives || receive_all(team, s, work, p, state);
    }
  }

  // A lane's items of a step. They are asked for long before they are used.
  template <class T>
  using Step = typename Row::template Step<T>;

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
      Step<T> given{};
      if (one) given = Row::template read<T>(work, token, batches.lane, Row::template items<T>(shape));
      if (batches.lane == 0 && token + batches.step < work.tokens) Row::prefetch(team, work, token + batches.step);
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

  // Tells all ranks that the token's row is in place, or that they get none. A lane announces what it has copied.
  template <Team T>
  static WEFT_FN void announce(T& team, const Session& s, const Work& work, std::uint32_t lane, std::uint32_t token,
                               const RankSet& to) {
    if (token == kNone) return;
    team.template await_stores<0>();
    for (std::uint32_t rank = lane; rank < s.size(); rank += T::kLanes) {
      ring(s, work).announce(team, rank, token, to.has(rank));
    }
  }

  template <Team T>
  static WEFT_FN void send_row(T& team, const Session& s, const Work& work, std::uint32_t lane, std::uint32_t token,
                               Step<T> given, SentEntries<T>& entries) {
    const ExchangeShape& shape = work.exchange.shape;
    if (lane == 0) work.exchange.tables.answering[token] = entries.to;
    team.fence_bulk();               // behind the credits
    team.template await_reads<0>();  // of a row that this warp has received
    team.sync_lanes();
    stage_entries(team, shape, lane, entries);
    const std::uint32_t count = Row::template items<T>(shape);
    for (std::uint32_t first = 0, piece = 0; first < count; first += kPieceItems<T>, ++piece) {
      const std::uint32_t place = 1 + piece % kPiecePlaces<T>;
      team.template await_reads<kPiecePlaces<T> - 1>();
      team.sync_lanes();
      for (std::uint32_t at = lane; at < kPieceItems<T> + lane; at += kStepItems<T>) {
        if (first + at - lane >= count) break;
        const Step<T> now = given;
        given = Row::template read<T>(work, token, first + at + kStepItems<T>, count);
        Row::template stage<T>(team, shape, place, at, first + at, count, now);
      }
      team.fence_stage();
      team.sync_lanes();
      const std::uint32_t pack = piece * kPiecePacks<T>;
      copy_to_all(team, s, work, lane, token, entries.to, shape.ring_head + pack, place, piece_packs<T>(shape, pack));
    }
    copy_to_all(team, s, work, lane, token, entries.to, 0, kHeadPlace, shape.ring_head);
  }
  // Copies a place to all ranks that get the row, to its pack `at`. The lanes share the ranks.
  template <Team T>
  static WEFT_FN void copy_to_all(T& team, const Session& s, const Work& work, std::uint32_t lane, std::uint32_t token,
                                  const RankSet& to, std::uint32_t at, std::uint32_t place, std::uint32_t packs) {
    for (std::uint32_t rank = lane; rank < s.size(); rank += T::kLanes) {
      if (!to.has(rank)) continue;
      team.store_bulk(ring(s, work).row(rank, s.rank(), token) + at, place, packs * sizeof(Pack));
    }
    team.commit_stores();
  }
  // The packs of the piece that begins at a pack of the payload.
  template <class T>
  static WEFT_FN std::uint32_t piece_packs(const ExchangeShape& shape, std::uint32_t pack) {
    const std::uint32_t left = shape.payload_packs - pack;
    return left < kPiecePacks<T> ? left : kPiecePacks<T>;
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
    const bool has_table = !p.role.sends && fits_table<T>(s, work.exchange.shape);
    if (has_table && !team.all(fill_table(team, s, work.exchange))) return false;
    const std::uint32_t places = ring(s, work).places(), round = p.role.sends ? p.batches.step : most;
    // Tokens. A round sends those whose places its rows have freed. They include all of the next round, because all
    // blocks together have no more warps than the ring has places.
    for (std::uint32_t first = 0, sent = places; first < most; first += round) {
      if (!team.all(receive(team, s, work, p, tokens, first, first + round, has_table))) return false;
      if (!p.role.sends) break;
      if (!send(team, s, work, p, state, sent, first + round + places)) return false;
      sent = first + round + places;
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

  template <Team T>
  static WEFT_FN bool receive_row(T& team, const Session& s, const Work& work, std::uint32_t lane, std::uint32_t sender,
                                  std::uint32_t token, std::uint32_t tokens, bool has_table) {
    const ExchangeShape& shape = work.exchange.shape;
    const Ring ring = MoeRingDispatch::ring(s, work);
    const bool owes = token + ring.places() < tokens;  // a credit
    bool has_row = false;
    if (!ring.await_row(team, sender, token, has_row)) return false;
    Entries<T> entries{};
    entries.local.each(lane, shape.top_k, [](std::uint32_t, std::uint32_t& local, std::uint32_t) { local = kNone; });
    if (!has_row) {
      if (owes && lane == 0) ring.give_credit(team, sender, token);
      note_entries(team, work, lane, sender, token, entries);
      return true;
    }
    const Pack* const row = ring.row(s.rank(), sender, token);
    std::uint32_t asked = 0;  // packs of the payload
    const auto ask = [&](std::uint32_t place) {
      const std::uint32_t packs = piece_packs<T>(shape, asked);
      team.load_bulk(place, row + shape.ring_head + asked, packs * sizeof(Pack));
      asked += packs;
    };
    team.fence_bulk();
    team.template await_reads<0>();  // of the row before
    team.sync_lanes();
    team.load_bulk(kHeadPlace, row, shape.ring_head * sizeof(Pack));
    for (std::uint32_t i = 0; i < kPiecePlaces<T> && asked < shape.payload_packs; ++i) ask(1 + i);
    team.await_load(kHeadPlace);
    entries = read_entries(team, s, shape, lane);
    if (has_table) {
      place_by_table(team, s, work.exchange, lane, sender, entries);
    } else if (!place(team, s, work.exchange, lane, sender, token, entries, [] {})) {
      return false;
    }
    // While the payload is under way.
    note_entries(team, work, lane, sender, token, entries);
    for (std::uint32_t left = entries.kept; left != 0; left &= left - 1) {
      Row::put_scales(team, work, lane, entries.row.get(team, lowest_bit(left)));
    }
    for (std::uint32_t pack = 0, i = 0; pack < shape.payload_packs; pack += kPiecePacks<T>, ++i) {
      const std::uint32_t place = 1 + i % kPiecePlaces<T>;
      team.await_load(place);
      put_piece(team, work, lane, place, pack, entries);
      if (asked == shape.payload_packs) continue;
      team.template await_reads<0>();
      team.sync_lanes();
      ask(place);
    }
    // The lane has awaited all of the row.
    if (owes && lane == 0) ring.give_credit(team, sender, token);
    return true;
  }

  // Copies a piece that has come to the rows of all entries. The lanes share the entries.
  template <Team T>
  static WEFT_FN void put_piece(T& team, const Work& work, std::uint32_t lane, std::uint32_t place, std::uint32_t pack,
                                Entries<T>& entries) {
    const ExchangeShape& shape = work.exchange.shape;
    const std::uint32_t end = pack + piece_packs<T>(shape, pack), output_end = Row::output_packs(shape);
    const std::uint32_t packs = (end < output_end ? end : output_end) - pack;  // in bulk, if pack < output_end
    entries.row.each(lane, shape.top_k, [&](std::uint32_t k, std::uint32_t row, std::uint32_t) {
      if ((entries.kept >> k & 1u) == 0 || pack >= output_end) return;
      team.store_bulk(Row::output(work, row) + pack, place, packs * sizeof(Pack));
    });
    team.commit_stores();
    if (end <= output_end) return;
    for (std::uint32_t left = entries.kept; left != 0; left &= left - 1) {
      const std::uint32_t row = entries.row.get(team, lowest_bit(left));
      for (std::uint32_t i = (pack > output_end ? pack : output_end) + lane; i < end; i += T::kLanes) {
        Row::put_rest(work, row, i, team.template staged<Pack>(place, i - pack));
      }
    }
  }
};

}  // namespace weft::detail
