// Dispatch for any number of tokens: rows flow through a ring (ops/moe/ring.hpp) straight into the output. The routing
// of a token travels before its row, and only the counts go ahead. So buffers do not grow with the number of tokens.
//
// The rows of a token and their places are those of MoeDispatch.
#pragma once

#include <cstdint>
#include <type_traits>

#include "ops/moe/moe_dispatch.hpp"
#include "ops/moe/ring.hpp"
#include "ops/moe/ring_routing.hpp"

namespace weft::detail {

// `compact`: the layout is RowLayout::rank_compact (ops/moe/compact_rows.hpp).
template <class Row, bool compact = false>
struct MoeRingDispatch : DispatchControl {
  using Frame = MoeFrame<DispatchWork>;
  static constexpr int kMostThreads = static_cast<int>(kMostWarpGroups * kWarpGroupThreads);
  static constexpr bool kStaged = true;
  static constexpr BeginScope kBeginScope = BeginScope::block;
  static WEFT_FN std::uint32_t warp_groups(const Work& work) { return work.warp_groups; }
  template <class T>
  static constexpr std::uint32_t kPiecePlaces = T::kStagePlaces - 1;  // of a stage; the other one is for heads
  // Packs of a piece, as a rank receives it. Pieces that it sends may be smaller.
  template <class T>
  static constexpr std::uint32_t kPiecePacks = items_of_piece<T>(1) * T::kLanes;

  using ThreadPlan = RingPlan<Frame>;
  template <StagedTeam T>
  static WEFT_FN ThreadPlan thread_plan(T& team, const Call& call, const Work& work) {
    static_assert(kPiecePacks<T> * sizeof(Pack) <= T::kStageBytes);
    static_assert(Row::template kGivenPacks<T> * sizeof(Pack) <= T::kStageBytes);
    ThreadPlan p = ring_plan<Frame>(team, call, work);
    if (!work.phases.has(0)) p.role.sends = false;  // a separate wait: all tokens have places of their own
    if (call.size == 1 && is_joined(work.phases)) p.role.receives = false;
    return p;
  }

  struct Prefetched {
    std::uint32_t waiting;  // as in DispatchControl
    std::uint32_t tallied;  // entries in the tally of a block that sends
    bool began;             // such a block has sent
  };
  template <Team T>
  static WEFT_FN Prefetched prefetch(T& team, const Session&, const Work& work, const ThreadPlan&) {
    if (team.block_rank() != 0) team.begin_stage();
    return {.waiting = read_waiting(team, work), .tallied = 0, .began = false};
  }

  static WEFT_FN Ring ring(const Session& s, const Work& work) {
    // Places of experts' rows follow from all counts. A block that does both may not wait for them while it sends: on a
    // CPU rank the other blocks' parts of this phase come behind its own.
    const ExchangeShape& shape = work.exchange.shape;
    const bool waits = work.senders == 0 && shape.layout != RowLayout::rank_major && s.size() > 1;
    return {&s, work.exchange.areas.rows, shape.ring_stride, waits || !is_joined(work.phases)};
  }

  template <int phase, Team T>
  static WEFT_FN bool run(T& team, const Session& s, const Work& work, const ThreadPlan& p, Prefetched& state) {
    if (team.block_rank() == 0) return control<phase>(team, s, work, p, state);
    const bool good = move<phase>(team, s, work, p, state);
    team.end_stage();
    return good;
  }
  template <int phase, Team T>
  static WEFT_FN bool control(T& team, const Session& s, const Work& work, const ThreadPlan& p,
                              const Prefetched& state) {
    if constexpr (phase == 0) {
      // The group counts together: it goes on or stops as one.
      if (!team.all(begin(team, s, work, p.header, state.waiting))) return false;
      if (const std::uint32_t slots = work.exchange.shape.slots; slots != 0) renew_record(team, s, work, 0, slots);
      send_all_counts(team, s, work);
      if constexpr (compact) send_row_counts(team, s, work);
      return true;
    } else {
      const bool good = control_receive(team, s, work, p.header);
      if constexpr (compact) return good && tell_rank_prefix(team, s, work);
      return good;
    }
  }
  template <int phase, Team T>
  static WEFT_FN bool move(T& team, const Session& s, const Work& work, const ThreadPlan& p, Prefetched& state) {
    if constexpr (phase == 0) {
      if (!p.role.sends) return true;
      clear_tally(team, compact ? s.size() : work.exchange.shape.replicas);
      return send(team, s, work, p, state, 0, p.role.receives ? ring(s, work).places() : work.tokens);
    } else {
      return !p.role.receives || receive_all(team, s, work, p, state);
    }
  }

  // Sends the tokens of the batches whose first token of this block is from `begin` on, below `end`. A row is announced
  // one batch later: the release then waits no longer for stores that are still under way.
  template <Team T>
  static WEFT_FN bool send(T& team, const Session& s, const Work& work, const ThreadPlan& p, Prefetched& state,
                           std::uint32_t begin, std::uint32_t end) {
    const ExchangeShape& shape = work.exchange.shape;
    const Ring ring = MoeRingDispatch::ring(s, work);
    const RingBatches& batches = p.batches;
    const RowTable table = ring.carries_own ? RowTable{} : table_of<compact>(team, s, shape, true);
    std::uint32_t last = kNone;  // token that is not announced
    RankSet last_to{};
    if (end > work.tokens) end = work.tokens;
    for (std::uint32_t first = batches.from(begin); first < end; first += batches.step) {
      const std::uint32_t token = first + batches.warp;
      const bool one = token < work.tokens;
      team.template await_reads<0>();  // of what this warp has copied before
      team.sync_lanes();
      GivenPieces<Row, T> given{Row::given(work, token), one ? Row::given_packs(shape) : 0};
      for (std::uint32_t i = 0; i < kPiecePlaces<T>; ++i) given.ask(team);
      if (batches.lane == 0 && token + batches.step < work.tokens) Row::prefetch(team, work, token + batches.step);
      tally_until(team, s, work, first, state);
      team.sync();
      // Every rank sends its counts without a wait, so this one ends although rows are not sent yet. If a rank is late,
      // the rows for all others wait with it.
      if (table.exists() && !state.began && !team.all(fill_table<compact>(team, s, work.exchange, table))) return false;
      state.began = true;
      SentEntries<T> entries{};
      if (one) entries = find_entries<compact>(team, s, work, batches.lane, first, token);
      announce(team, s, work, batches.lane, last, last_to);
      Entries<T> own{};
      bool good = !one || ring.await_places(team, batches.lane, token);
      if (one && !ring.carries_own) good = place_own(team, s, work, table, batches.lane, token, entries, own) && good;
      if (!team.all(good)) return false;  // from here on nobody reads the tally
      last = one ? token : kNone;
      last_to = entries.to;
      if (one) send_row(team, s, work, batches.lane, token, given, entries, own);
    }
    announce(team, s, work, batches.lane, last, last_to);
    return true;
  }

  // Adds what the tokens before `end` send to the tally.
  template <Team T>
  static WEFT_FN void tally_until(T& team, const Session& s, const Work& work, std::uint32_t end, Prefetched& state) {
    const ExchangeShape& shape = work.exchange.shape;
    const std::uint32_t entries = end * shape.top_k;
    if constexpr (compact) {
      tally_rows(team, s, work, state.tallied / shape.top_k, end);
    } else if (needs_ordinals(shape)) {
      tally_entries(team, TopK::of(work, s.rank()), state.tallied, entries);
    }
    state.tallied = entries;
  }

  // Finds the output's rows for a token of this rank, and notes them. False when the call has failed.
  template <Team T>
  static WEFT_FN bool place_own(T& team, const Session& s, const Work& work, const RowTable& table, std::uint32_t lane,
                                std::uint32_t token, const SentEntries<T>& entries, Entries<T>& own) {
    own = entries_here(team, s, work.exchange.shape, lane,
                       [&](std::uint32_t, std::uint32_t j) { return entries.pack(j); });
    if (!place_by_table<compact>(team, s, work.exchange, table, lane, s.rank(), token, own)) return false;
    note(team, work, lane, s.rank(), token, own);
    return true;
  }

  // Tells all ranks that the token's row is in place, or that they get none. A lane announces what it has copied.
  template <Team T>
  static WEFT_FN void announce(T& team, const Session& s, const Work& work, std::uint32_t lane, std::uint32_t token,
                               const RankSet& to) {
    if (token == kNone) return;
    const Ring ring = MoeRingDispatch::ring(s, work);
    team.template await_stores<0>();
    for (std::uint32_t rank = lane; rank < s.size(); rank += T::kLanes) {
      if (ring.reaches(rank)) ring.announce(team, rank, token, to.has(rank) ? RowState::is_whole : RowState::none);
    }
  }

  // `own`: rows of this rank, which the pieces go to at once.
  template <Team T>
  static WEFT_FN void send_row(T& team, const Session& s, const Work& work, std::uint32_t lane, std::uint32_t token,
                               GivenPieces<Row, T>& given, SentEntries<T>& entries, Entries<T>& own) {
    const ExchangeShape& shape = work.exchange.shape;
    if (lane == 0) work.exchange.tables.answering[token] = entries.to;
    team.fence_bulk();  // behind the credits
    stage_entries(team, shape, lane, entries);
    const RowCopies copies(ring(s, work), lane, token, entries.to);
    send_pieces(team, work, lane, token, given, copies, own);
    copies.to_all(team, 0, kHeadPlace, shape.ring_head);
    team.commit_stores();
    put_all_scales(team, work, lane, own);
  }
  // Copies of a token's row to the ranks `to` that the ring reaches. The lanes share the ranks.
  struct RowCopies {
    Ring ring;
    std::uint32_t lane, token;
    RankSet to;
    Pack* first;

    WEFT_FN RowCopies(const Ring& ring, std::uint32_t lane, std::uint32_t token, const RankSet& to)
        : ring(ring), lane(lane), token(token), to(to), first(place_in(lane)) {}
    WEFT_FN Pack* place_in(std::uint32_t rank) const {
      return ring.reaches(rank) && to.has(rank) ? ring.row(rank, ring.session->rank(), token) : nullptr;
    }
    // Copies packs of a place of the stage, from pack `from` on, to pack `at` of each row.
    template <Team T>
    WEFT_FN void to_all(T& team, std::uint32_t at, std::uint32_t place, std::uint32_t packs,
                        std::uint32_t from = 0) const {
      const auto bytes = static_cast<std::uint32_t>(packs * sizeof(Pack));
      const auto first_byte = static_cast<std::uint32_t>(from * sizeof(Pack));
      if (first != nullptr) team.store_bulk(first + at, place, bytes, first_byte);
      for (std::uint32_t rank = lane + T::kLanes; rank < ring.session->size(); rank += T::kLanes) {
        Pack* const row = place_in(rank);
        if (row != nullptr) team.store_bulk(row + at, place, bytes, first_byte);
      }
    }
  };
  // Sends the payload in pieces. The scales of a row that is cast lie in the head's place then.
  template <Team T>
  static WEFT_FN void send_pieces(T& team, const Work& work, std::uint32_t lane, std::uint32_t token,
                                  GivenPieces<Row, T>& given, const RowCopies& copies, Entries<T>& own) {
    constexpr std::uint32_t kPacks = Row::template kPiecePacks<T>;
    const ExchangeShape& shape = work.exchange.shape;
    for (std::uint32_t pack = 0, place = 1; pack < shape.payload_packs; pack += kPacks, place = given.behind(place)) {
      const std::uint32_t packs = packs_of<kPacks>(shape, pack);
      if (Row::is_given(shape, pack)) team.await_load(place);
      Row::finish(team, work, token, lane, place, pack);
      team.fence_stage();
      team.sync_lanes();
      copies.to_all(team, shape.ring_head + pack, place, packs);
      put_piece(team, work, lane, place, pack, packs, own);
      if (pack == 0) continue;
      team.template await_reads<1>();  // of the piece before
      team.sync_lanes();
      given.ask(team);
    }
  }
  // The packs of the piece that begins at a pack of the payload; a whole one has `most`.
  template <std::uint32_t most>
  static WEFT_FN std::uint32_t packs_of(const ExchangeShape& shape, std::uint32_t pack) {
    const std::uint32_t left = shape.payload_packs - pack;
    return left < most ? left : most;
  }

  template <Team T>
  static WEFT_FN bool receive_all(T& team, const Session& s, const Work& work, const ThreadPlan& p, Prefetched& state) {
    SenderTokens<T> tokens;
    const bool known = tokens.know_all(team, s, work.exchange, p.batches.lane);
    if (!team.all(known)) return false;
    const std::uint32_t most = tokens.most(team, s);
    const RowTable table = p.role.sends ? RowTable{} : table_of<compact>(team, s, work.exchange.shape, false);
    if (table.exists() && !team.all(fill_table<compact>(team, s, work.exchange, table))) return false;
    const std::uint32_t places = ring(s, work).places(), round = p.role.sends ? p.batches.step : most;
    // Tokens. A round sends those whose places its rows have freed. They include all of the next round, because all
    // blocks together have no more warps than the ring has places.
    for (std::uint32_t first = 0, sent = places; first < most; first += round) {
      const auto receive = [&](std::uint32_t sender, std::uint32_t token, std::uint32_t count) {
        return receive_row(team, s, work, p.batches.lane, sender, token, count, table);
      };
      if (!team.all(each_row(team, ring(s, work), p.batches, tokens, first, first + round, receive))) return false;
      if (!p.role.sends) break;
      if (!send(team, s, work, p, state, sent, first + round + places)) return false;
      sent = first + round + places;
    }
    return true;
  }

  // Calls `receive(sender, token, tokens)` for this warp's tokens among `begin` … `end` − 1 of all ranks that the ring
  // reaches, by ascending token. `tokens`: of the sender. False when a call was false.
  template <Team T, class Receive>
  static WEFT_FN bool each_row(T& team, const Ring& ring, const RingBatches& batches, const SenderTokens<T>& tokens,
                               std::uint32_t begin, std::uint32_t end, Receive receive) {
    const std::uint32_t senders = ring.partners();
    for (std::uint32_t i = begin * senders + batches.first + batches.warp; i < end * senders; i += batches.step) {
      const std::uint32_t token = i / senders, sender = ring.partner(i % senders);
      const std::uint32_t count = tokens.count.get(team, sender);
      if (token < count && !receive(sender, token, count)) return false;
    }
    return true;
  }

  template <Team T>
  static WEFT_FN bool receive_row(T& team, const Session& s, const Work& work, std::uint32_t lane, std::uint32_t sender,
                                  std::uint32_t token, std::uint32_t tokens, const RowTable& table) {
    const Ring ring = MoeRingDispatch::ring(s, work);
    const bool owes = token + ring.places() < tokens;  // a credit
    RowState state{};
    if (!ring.await_row(team, sender, token, state)) return false;
    if (state == RowState::none) {
      if (owes && lane == 0) ring.give_credit(team, sender, token);
      note_no_row(team, work, lane, sender, token);
      return true;
    }
    if (!take_row(team, s, work, lane, sender, token, table, true)) return false;
    // The lane has awaited all of the row.
    if (owes && lane == 0) ring.give_credit(team, sender, token);
    return true;
  }
  template <Team T>
  static WEFT_FN void note(T& team, const Work& work, std::uint32_t lane, std::uint32_t sender, std::uint32_t token,
                           Entries<T>& entries) {
    note_entries(team, work, lane, sender, token, entries);
    if (compact && entries.kept != 0) put_ids(work, lane, entries.row.get(team, lowest_bit(entries.kept)), entries);
  }
  template <Team T>
  static WEFT_FN void note_no_row(T& team, const Work& work, std::uint32_t lane, std::uint32_t sender,
                                  std::uint32_t token) {
    Entries<T> entries{};
    entries.local.each(lane, work.exchange.shape.top_k,
                       [](std::uint32_t, std::uint32_t& local, std::uint32_t) { local = kNone; });
    note_entries(team, work, lane, sender, token, entries);
  }
  // Copies a row that has come into the output, and notes it if asked. `from`: the row's head, or entries that are
  // known without it, with their places. False when the call has failed.
  struct Head {};
  template <Team T, class From = Head>
  static WEFT_FN bool take_row(T& team, const Session& s, const Work& work, std::uint32_t lane, std::uint32_t sender,
                               std::uint32_t token, const RowTable& table, bool notes, const From& from = {}) {
    const ExchangeShape& shape = work.exchange.shape;
    const Pack* const row = ring(s, work).row(s.rank(), sender, token);
    std::uint32_t asked = 0;  // packs of the payload
    const auto ask = [&](std::uint32_t place) {
      const std::uint32_t packs = packs_of<kPiecePacks<T>>(shape, asked);
      team.load_bulk(place, row + shape.ring_head + asked, packs * sizeof(Pack));
      asked += packs;
    };
    team.fence_bulk();
    team.template await_reads<0>();  // of the row before
    team.sync_lanes();
    team.load_bulk(kHeadPlace, row, shape.ring_head * sizeof(Pack));
    for (std::uint32_t i = 0; i < kPiecePlaces<T> && asked < shape.payload_packs; ++i) ask(1 + i);
    team.await_load(kHeadPlace);
    Entries<T> entries = entries_from(team, s, shape, lane, from);
    if constexpr (std::is_same_v<From, Head>) {
      if (!place_by_table<compact>(team, s, work.exchange, table, lane, sender, token, entries)) return false;
      // While the payload is under way.
      if (notes) note(team, work, lane, sender, token, entries);
    }
    put_all_scales(team, work, lane, entries);
    for (std::uint32_t pack = 0, i = 0; pack < shape.payload_packs; pack += kPiecePacks<T>, ++i) {
      const std::uint32_t place = 1 + i % kPiecePlaces<T>;
      team.await_load(place);
      put_piece(team, work, lane, place, pack, packs_of<kPiecePacks<T>>(shape, pack), entries);
      if (asked == shape.payload_packs) continue;
      team.template await_reads<0>();
      team.sync_lanes();
      ask(place);
    }
    return true;
  }
  template <Team T>
  static WEFT_FN Entries<T> entries_from(T& team, const Session& s, const ExchangeShape& shape, std::uint32_t lane,
                                         Head) {
    return staged_entries(team, s, shape, lane);
  }
  template <Team T>
  static WEFT_FN const Entries<T>& entries_from(T&, const Session&, const ExchangeShape&, std::uint32_t,
                                                const Entries<T>& known) {
    return known;
  }
  // The entries of a head that has come, whose experts this rank has.
  template <Team T>
  static WEFT_FN Entries<T> staged_entries(T& team, const Session& s, const ExchangeShape& shape, std::uint32_t lane) {
    return entries_here(team, s, shape, lane,
                        [&](std::uint32_t k, std::uint32_t) { return team.template staged<Pack>(kHeadPlace, k); });
  }

  // Puts the scales of a head into the rows of all entries.
  template <Team T>
  static WEFT_FN void put_all_scales(T& team, const Work& work, std::uint32_t lane, Entries<T>& entries) {
    for (std::uint32_t left = entries.kept; left != 0; left &= left - 1) {
      Row::put_scales(team, work, lane, entries.row.get(team, lowest_bit(left)));
    }
  }

  // Copies a piece of `count` packs to the rows of all entries, and ends a group of copies. The lanes share the
  // entries. `pack`: of the payload, at which the piece begins.
  template <Team T>
  static WEFT_FN void put_piece(T& team, const Work& work, std::uint32_t lane, std::uint32_t place, std::uint32_t pack,
                                std::uint32_t count, Entries<T>& entries) {
    const ExchangeShape& shape = work.exchange.shape;
    const std::uint32_t end = pack + count, output_end = Row::output_packs(shape);
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
