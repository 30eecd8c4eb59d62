// Dispatch in rounds of experts through a ring. All rows have places of their own, so nobody waits for credits.
//
// The heads of all rows go first, with the routing of their tokens. So the first wait notes every row for combine, and
// places follow as in one round. A row follows in the first round in which its receiver needs it. Its warp has sent its
// head, too: so the two words that announce them are stored in order. Rows to this rank itself flow like all others.
#pragma once

#include <cstdint>

#include "ops/moe/ring_dispatch.hpp"

namespace weft::detail {

template <class Row>
struct MoeRingRounds : MoeRingDispatch<Row> {
  using Base = MoeRingDispatch<Row>;
  using Work = DispatchWork;
  using typename Base::Frame;
  using typename Base::Prefetched;
  using typename Base::RowCopies;
  using typename Base::ThreadPlan;

  template <StagedTeam T>
  static WEFT_FN ThreadPlan thread_plan(T& team, const Call& call, const Work& work) {
    ThreadPlan p = ring_plan<Frame>(team, call, work);
    if (!work.phases.has(0)) p.role.sends = false;  // so that the tally has room for a table
    return p;
  }

  static WEFT_FN Ring ring(const Session& s, const Work& work) {
    return {&s, work.exchange.areas.rows, work.exchange.shape.ring_stride, true};
  }

  template <int phase, Team T>
  static WEFT_FN bool run(T& team, const Session& s, const Work& work, const ThreadPlan& p, Prefetched& state) {
    if (team.block_rank() == 0) {
      if (phase != 0 && work.rounds.current != 0) return Frame::compare(team, s, p.header, nullptr);
      return Base::template control<phase>(team, s, work, p, state);
    }
    bool good = true;
    if constexpr (phase == 0) {
      if (p.role.sends) {
        send_heads(team, s, work, p);
        for (std::uint32_t round = 0; round < work.rounds.count; ++round) send_rows(team, s, work, p, round);
      }
    } else if (p.role.receives) {
      good = receive(team, s, work, p);
    }
    team.end_stage();
    return good;
  }

  // Announcements come one token later, as in MoeRingDispatch.
  template <Team T>
  static WEFT_FN void send_heads(T& team, const Session& s, const Work& work, const ThreadPlan& p) {
    const ExchangeShape& shape = work.exchange.shape;
    const RingBatches& batches = p.batches;
    clear_tally(team, shape.replicas);
    std::uint32_t tallied = 0, last = kNone;
    RankSet last_to{};
    const auto announce_last = [&] {
      if (last == kNone) return;
      team.template await_stores<0>();
      for (std::uint32_t rank = batches.lane; rank < s.size(); rank += T::kLanes) {
        ring(s, work).announce(team, rank, last, last_to.has(rank) ? RowState::has_head : RowState::none);
      }
    };
    for (std::uint32_t first = batches.from(0); first < work.tokens; first += batches.step) {
      const std::uint32_t token = first + batches.warp;
      const bool one = token < work.tokens;
      if (needs_ordinals(shape)) tally_entries(team, TopK::of(work, s.rank()), tallied, first * shape.top_k);
      tallied = first * shape.top_k;
      team.sync();
      SentEntries<T> entries{};
      if (one) entries = find_entries(team, s, work, batches.lane, first, token);
      announce_last();  // and await its copies: then its place is free
      team.sync();      // from here on nobody reads the tally
      last = one ? token : kNone;
      last_to = entries.to;
      if (!one) continue;
      if (batches.lane == 0) work.exchange.tables.answering[token] = entries.to;
      stage_entries(team, shape, batches.lane, entries);
      team.fence_stage();
      team.sync_lanes();
      RowCopies(ring(s, work), batches.lane, token, entries.to).to_all(team, 0, kHeadPlace, shape.top_k);
      team.commit_stores();
    }
    announce_last();
  }

  // Sends the rows that are needed in a round, and in none before it.
  template <Team T>
  static WEFT_FN void send_rows(T& team, const Session& s, const Work& work, const ThreadPlan& p, std::uint32_t round) {
    const ExchangeShape& shape = work.exchange.shape;
    const RingBatches& batches = p.batches;
    const ExpertRange experts = work.rounds.experts(round);
    std::uint32_t last = kNone;
    RankSet last_to{};
    const auto announce_last = [&] {
      if (last == kNone) return;
      team.template await_stores<0>();
      for (std::uint32_t rank = batches.lane; rank < s.size(); rank += T::kLanes) {
        if (last_to.has(rank)) ring(s, work).announce(team, rank, last, RowState::is_whole);
      }
    };
    Entries<T> none{};
    for (std::uint32_t token = batches.from(0) + batches.warp; token < work.tokens; token += batches.step) {
      const TopK::Id own_id =
          TopK::of(work, s.rank()).id(token * shape.top_k + batches.lane, (token + 1) * shape.top_k);
      RankSet to = ranks_of<true>(team, s, work, batches.lane, token, own_id, experts.end);
      if (round != 0) to = to.without(ranks_of<true>(team, s, work, batches.lane, token, own_id, experts.begin));
      if (to.empty()) continue;
      team.template await_reads<0>();  // of the row before
      team.sync_lanes();
      GivenPieces<Row, T> given{Row::given(work, token), Row::given_packs(shape)};
      for (std::uint32_t i = 0; i < Base::template kPiecePlaces<T>; ++i) given.ask(team);
      announce_last();
      const RowCopies copies(ring(s, work), batches.lane, token, to);
      Base::send_pieces(team, work, batches.lane, token, given, copies, none);
      const std::uint32_t scales = shape.ring_head - shape.top_k;
      if (scales != 0) copies.to_all(team, shape.top_k, kHeadPlace, scales, shape.top_k);
      team.commit_stores();
      last = token;
      last_to = to;
    }
    announce_last();
  }

  // False when the call has failed.
  template <Team T>
  static WEFT_FN bool receive(T& team, const Session& s, const Work& work, const ThreadPlan& p) {
    SenderTokens<T> tokens;
    const bool known = tokens.know_all(team, s, work.exchange, p.batches.lane);
    const RowTable table = p.role.sends ? RowTable{} : table_of(team, s, work.exchange.shape, false);
    if (!team.all(known && (!table.exists() || fill_table(team, s, work.exchange, table)))) return false;
    const auto receive_row = [&](std::uint32_t sender, std::uint32_t token, std::uint32_t) {
      return MoeRingRounds::receive_row(team, s, work, p.batches.lane, sender, token, table);
    };
    return Base::each_row(team, ring(s, work), p.batches, tokens, 0, tokens.most(team, s), receive_row);
  }

  template <Team T>
  static WEFT_FN bool receive_row(T& team, const Session& s, const Work& work, std::uint32_t lane, std::uint32_t sender,
                                  std::uint32_t token, const RowTable& table) {
    const ExchangeShape& shape = work.exchange.shape;
    const Ring ring = MoeRingRounds::ring(s, work);
    const bool notes = work.rounds.current == 0;
    RowState state{};
    if (!ring.template await_row<RowState::has_head>(team, sender, token, state)) return false;
    if (state == RowState::none) {
      if (notes) Base::note_no_row(team, work, lane, sender, token);
      return true;
    }
    team.fence_bulk();
    team.template await_reads<0>();  // of the row before
    team.sync_lanes();
    team.load_bulk(kHeadPlace, ring.row(s.rank(), sender, token), shape.top_k * sizeof(Pack));
    team.await_load(kHeadPlace);
    Entries<T> entries = Base::staged_entries(team, s, shape, lane);
    if (comes_now<true>(team, work, lane, entries)) {
      if (!ring.await_row(team, sender, token, state)) return false;
      return Base::take_row(team, s, work, lane, sender, token, table, notes);
    }
    if (!notes) return true;
    if (!place_by_table(team, s, work.exchange, table, lane, sender, token, entries)) return false;
    note_entries(team, work, lane, sender, token, entries);
    return true;
  }
};

}  // namespace weft::detail
