// Dispatches that are made again with the routing of an earlier one (DispatchArgs::again).
//
// That dispatch has left its routing in its handle slot, for combine: which ranks get a token's row, and which rows of
// the output a row that comes goes to. So no ids are read, and neither counts nor routing travel. Signals and credits
// are those of any dispatch.
//
// All ranks must mean the same routing. Each dispatch of a repeatable exchange notes its epoch in the handle slot. One
// that is made again tells every rank that epoch, in the place for the number of its tokens, and all compare.
#pragma once

#include <cstdint>

#include "ops/moe/ring_dispatch.hpp"

namespace weft::detail {

// A dispatch whose routing may serve others.
template <class Row, bool compact>
struct MoeRingNoted : MoeRingDispatch<Row, compact> {
  using Base = MoeRingDispatch<Row, compact>;
  using typename Base::Prefetched;
  using typename Base::ThreadPlan;

  template <int phase, Team T>
  static WEFT_FN bool run(T& team, const Session& s, const DispatchWork& work, const ThreadPlan& p, Prefetched& state) {
    const bool good = Base::template run<phase>(team, s, work, p, state);
    const bool notes = phase == 1 && team.block_rank() == 0 && team.thread_rank() == 0;
    if (notes) work.exchange.tables.header->origin = s.epoch;
    return good;
  }
};

// One instance serves all layouts: they differ in the places of rows, which are known.
template <class Row>
struct MoeRingAgain : MoeRingDispatch<Row> {
  using Base = MoeRingDispatch<Row>;
  using Work = DispatchWork;
  using typename Base::Frame;
  using typename Base::Prefetched;
  using typename Base::RowCopies;
  using typename Base::ThreadPlan;

  template <int phase, Team T>
  static WEFT_FN bool run(T& team, const Session& s, const Work& work, const ThreadPlan& p, Prefetched& state) {
    if (team.block_rank() == 0) return control<phase>(team, s, work, p, state);
    const bool good = move<phase>(team, s, work, p);
    team.end_stage();
    return good;
  }
  template <int phase, Team T>
  static WEFT_FN bool control(T& team, const Session& s, const Work& work, const ThreadPlan& p,
                              const Prefetched& state) {
    RoutingHeader& header = *work.exchange.tables.header;
    if constexpr (phase == 0) {
      const std::uint32_t had = header.tokens[s.rank()];
      if (had != work.tokens) {
        if (team.thread_rank() == 0) report_other(team, s, s.rank(), 0, {Misfit::tokens, 0, work.tokens, had});
        return false;
      }
      if (!team.all(Base::template begin<true>(team, s, work, p.header, state.waiting))) return false;
      renew_counts(team, s, work);
      return true;
    } else {
      if (!team.all_lanes(Frame::compare(team, s, p.header, work.source_wait_ns))) return false;
      if (team.thread_rank() < T::kLanes && !compare_origins(team, s, work)) return false;
      if (team.thread_rank() == 0) header.waiting = 1;
      return true;
    }
  }
  template <int phase, Team T>
  static WEFT_FN bool move(T& team, const Session& s, const Work& work, const ThreadPlan& p) {
    if constexpr (phase == 0) {
      // A group that receives, too, waits for nothing here: so its warps go on together.
      const std::uint32_t places = Base::ring(s, work).places();
      return !p.role.sends || send(team, s, work, p, 0, p.role.receives ? places : work.tokens);
    } else {
      return !p.role.receives || receive_all(team, s, work, p);
    }
  }

 private:
  template <Team T>
  static WEFT_FN void report_other(T& team, const Session& s, std::uint32_t rank, std::uint32_t phase,
                                   const MisfitInfo& misfit) {
    report_misfit(team, id_of(s),
                  {.code = Errc::mismatch,
                   .peer = s.call->channel->member[rank],
                   .epoch_seen = s.epoch,
                   .theirs = s.call->fingerprint,
                   .phase = phase},
                  misfit);
  }

  // By the first warp of the control block, whose lanes share the ranks. False when the call has failed.
  template <Team T>
  static WEFT_FN bool compare_origins(T& team, const Session& s, const Work& work) {
    const std::uint32_t mine = work.exchange.tables.header->origin;
    bool same = true;
    for (std::uint32_t first = 0; first < s.size(); first += T::kLanes) {
      const std::uint32_t rank = first + team.thread_rank();
      std::uint64_t word = FlaggedWord::encode(mine, s.epoch);
      const auto arrived = [&] {
        if (rank < s.size()) word = team.load(Base::area(s, work, s.rank(), rank).tokens());
        return team.all_lanes(FlaggedWord::arrived(word, s.epoch));
      };
      const auto late = [&] { return FlaggedWord::arrived(word, s.epoch) ? kNoPeer : rank; };
      if (!wait(team, s, {.phase = 1, .warp = true}, arrived, late)) return false;
      const std::uint32_t theirs = FlaggedWord::decode(word);
      if (theirs == mine) continue;
      report_other(team, s, rank, 1, {Misfit::routing, rank, theirs, mine});
      same = false;
    }
    return team.all_lanes(same);
  }

  // Nobody reads counts, but each is written in its turn: so no flag grows so old that it passes for a new one.
  template <Team T>
  static WEFT_FN void renew_counts(T& team, const Session& s, const Work& work) {
    const ExchangeShape& shape = work.exchange.shape;
    const std::uint32_t turn = s.epoch / kBanks;
    const std::uint64_t none = FlaggedWord::encode(0, s.epoch);
    if (team.thread_rank() == 0) {
      const ExpertHome home = home_of(work.exchange, turn % shape.replicas);
      team.store(Base::area(s, work, home.rank, s.rank()).counts() + home.local, none);
    }
    if (shape.layout != RowLayout::rank_compact) return;
    for (std::uint32_t rank = team.thread_rank(); rank < s.size(); rank += team.size()) {
      team.store(Base::area(s, work, rank, s.rank()).row_counts(s.size()) + turn % s.size(), none);
    }
  }

  // The rows of the output that a token's row goes to. By all lanes.
  template <Team T>
  static WEFT_FN Entries<T> known_entries(const Work& work, std::uint32_t lane, std::uint32_t sender,
                                          std::uint32_t token) {
    const ExchangeShape& shape = work.exchange.shape;
    const RoutingTables& tables = work.exchange.tables;
    const std::uint64_t noted = std::uint64_t{sender} * shape.tokens + token;
    const std::uint32_t word = tables.entry_counts[noted];
    const std::uint32_t count = word == kNone ? 0 : EntryCount::of(word).count;
    Entries<T> entries{};
    entries.row.each(lane, count, [&](std::uint32_t k, std::uint32_t& row, std::uint32_t) {
      row = tables.entries[noted * shape.top_k + k].row;
    });
    entries.kept = count == 0 ? 0 : ~0u >> (32 - count);
    return entries;
  }

  // As in MoeRingDispatch; nobody counts, so warps need not meet.
  template <Team T>
  static WEFT_FN bool send(T& team, const Session& s, const Work& work, const ThreadPlan& p, std::uint32_t begin,
                           std::uint32_t end) {
    const ExchangeShape& shape = work.exchange.shape;
    const Ring ring = Base::ring(s, work);
    const RingBatches& batches = p.batches;
    std::uint32_t last = kNone;  // token that is not announced
    RankSet last_to{};
    if (end > work.tokens) end = work.tokens;
    for (std::uint32_t first = batches.from(begin); first < end; first += batches.step) {
      const std::uint32_t token = first + batches.warp;
      if (token >= work.tokens) break;
      team.template await_reads<0>();  // of the row before
      team.sync_lanes();
      GivenPieces<Row, T> given{Row::given(work, token), Row::given_packs(shape)};
      for (std::uint32_t i = 0; i < Base::template kPiecePlaces<T>; ++i) given.ask(team);
      if (batches.lane == 0 && token + batches.step < work.tokens) Row::prefetch(team, work, token + batches.step);
      const RankSet to = work.exchange.tables.answering[token];
      Entries<T> own{};
      if (!ring.carries_own) own = known_entries<T>(work, batches.lane, s.rank(), token);
      Base::announce(team, s, work, batches.lane, last, last_to);
      if (!ring.await_places(team, batches.lane, token)) return false;
      team.sync_lanes();
      team.fence_bulk();  // behind the credits
      const RowCopies copies(ring, batches.lane, token, to);
      Base::send_pieces(team, work, batches.lane, token, given, copies, own);
      const std::uint32_t scales = shape.ring_head - shape.top_k;
      if (scales != 0) copies.to_all(team, shape.top_k, kHeadPlace, scales, shape.top_k);
      team.commit_stores();
      Base::put_all_scales(team, work, batches.lane, own);
      last = token;
      last_to = to;
    }
    Base::announce(team, s, work, batches.lane, last, last_to);
    return true;
  }

  template <Team T>
  static WEFT_FN bool receive_all(T& team, const Session& s, const Work& work, const ThreadPlan& p) {
    const RoutingHeader& header = *work.exchange.tables.header;
    SenderTokens<T> tokens;
    tokens.count.each(p.batches.lane, s.size(),
                      [&](std::uint32_t rank, std::uint32_t& count, std::uint32_t) { count = header.tokens[rank]; });
    const Ring ring = Base::ring(s, work);
    const std::uint32_t most = header.most_tokens, places = ring.places();
    const std::uint32_t round = p.role.sends ? p.batches.step : most;  // as in MoeRingDispatch
    for (std::uint32_t first = 0, sent = places; first < most; first += round) {
      const auto receive = [&](std::uint32_t sender, std::uint32_t token, std::uint32_t count) {
        return receive_row(team, s, work, p.batches.lane, sender, token, count);
      };
      if (!team.all(Base::each_row(team, ring, p.batches, tokens, first, first + round, receive))) return false;
      if (!p.role.sends) break;
      if (!team.all(send(team, s, work, p, sent, first + round + places))) return false;
      sent = first + round + places;
    }
    return true;
  }

  // `tokens`: of the sender.
  template <Team T>
  static WEFT_FN bool receive_row(T& team, const Session& s, const Work& work, std::uint32_t lane, std::uint32_t sender,
                                  std::uint32_t token, std::uint32_t tokens) {
    const Ring ring = Base::ring(s, work);
    const Entries<T> known = known_entries<T>(work, lane, sender, token);
    RowState state{};
    if (!ring.await_row(team, sender, token, state)) return false;
    const bool has = state != RowState::none;
    if (has && !Base::take_row(team, s, work, lane, sender, token, RowTable{}, false, known)) return false;
    const bool owes = token + ring.places() < tokens;  // a credit
    if (owes && lane == 0) ring.give_credit(team, sender, token);
    return true;
  }
};

}  // namespace weft::detail
