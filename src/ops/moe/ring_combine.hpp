// Combine for any number of tokens: rows come back through a ring (ops/moe/ring.hpp). Sums are those of MoeCombine.
#pragma once

#include <cstdint>
#include <type_traits>

#include "ops/moe/moe_combine.hpp"
#include "ops/moe/ring.hpp"
#include "ops/moe/ring_sources.hpp"

namespace weft::detail {

template <DataType type, bool late = false, bool in_rounds = false>
struct MoeRingCombine : MoeCombine<type, 4, late, in_rounds> {
  using Slots = MoeCombine<type, 4, late, in_rounds>;
  using Frame = MoeFrame<CombineWork>;
  using Work = CombineWork;
  using typename Slots::R;
  template <class T>
  using Loaded = typename Slots::template Loaded<T>;
  static constexpr int kMostThreads = 512;
  static constexpr bool kStaged = true;
  // A quarter of DeepSeek-V3's rows in each place. Larger pieces cost fewer instructions a byte. More than 112 KB of
  // loads under way make a processor slower (docs/notes/0057-wider-pieces.md).
  static constexpr GpuStage kGpuStage{.places = 2, .bytes = 3584};
  static constexpr BeginScope kBeginScope = BeginScope::block;
  static WEFT_FN std::uint32_t warp_groups(const Work& work) { return work.warp_groups; }
  template <class T>
  static constexpr std::uint32_t kPacksAtOnce = RowPieces<T>::kLanePacks;
  template <class T>
  static constexpr std::uint32_t kPiecePacks = RowPieces<T>::kPacks;

  using ThreadPlan = RingPlan<Frame>;
  template <StagedTeam T>
  static WEFT_FN ThreadPlan thread_plan(T& team, const Call& call, const Work& work) {
    ThreadPlan p = ring_plan<Frame>(team, call, work);
    if (call.size == 1 && is_joined(work.phases)) p.role.sends = false;
    return p;
  }

  // As MoeCombine's.
  struct Prefetched {
    bool failed;
    std::uint32_t weight;
  };
  template <Team T>
  static WEFT_FN Prefetched prefetch(T& team, const Session&, const Work& work, const ThreadPlan&) {
    if (team.block_rank() != 0) team.begin_stage();
    if (!Frame::is_there(work)) return {};
    const std::uint32_t block = team.block_rank() % (team.blocks() / work.warp_groups);
    const std::uint32_t weight = late ? first_late_weight(team, work) : 0;
    const bool ended = team.load(&work.dispatch_admitted[block].value) == kEnded;
    return {!team.all(!ended), weight};  // warps that meet later go on or stop together
  }

  static WEFT_FN Ring ring(const Session& s, const Work& work) {
    return {&s, work.exchange.areas.results, work.exchange.shape.combine_packs, !is_joined(work.phases)};
  }

  template <int phase, Team T>
  static WEFT_FN bool run(T& team, const Session& s, const Work& work, const ThreadPlan& p, Prefetched& prefetched) {
    if (prefetched.failed) return false;
    if (team.block_rank() != 0) {
      if constexpr (phase < Slots::kSending) {
        send_late_weights(team, s, work, prefetched.weight);
        return true;
      } else {
        const bool good = move<phase>(team, s, work, p);
        team.end_stage();
        return good;
      }
    }
    if constexpr (phase == 0) {
      if (!in_rounds || work.rounds.current == 0) Frame::Handshake::send(team, s, p.header);
      if constexpr (late) renew_late_weights(team, s, work);
    } else if constexpr (phase > Slots::kSending) {
      if (!Frame::compare(team, s, p.header, work.source_wait_ns)) return false;
      if (team.thread_rank() == 0) work.exchange.tables.header->waiting = 0;
    }
    return true;
  }
  // As in MoeRingDispatch.
  template <int phase, Team T>
  static WEFT_FN bool move(T& team, const Session& s, const Work& work, const ThreadPlan& p) {
    const RoutingHeader& header = *work.exchange.tables.header;
    const std::uint32_t places = ring(s, work).places(), most = header.most_tokens;
    if constexpr (phase == Slots::kSending) {
      const bool sent = !p.role.sends || send(team, s, work, p, 0, p.role.receives ? places : most);
      // A wait for weights may fail in one warp alone, and the others would then wait for it in the next phase.
      return late ? team.all(sent) : sent;
    } else {
      if (!p.role.receives) return true;
      const std::uint32_t mine = header.tokens[s.rank()], round = p.role.sends ? p.batches.step : most;
      for (std::uint32_t first = 0, sent = places; first < most; first += round) {
        const std::uint32_t end = first + round;
        if (!team.all(receive(team, s, work, p, first, end < mine ? end : mine))) return false;
        if (!p.role.sends) break;
        if (!team.all(send(team, s, work, p, sent, end + places))) return false;
        sent = end + places;
      }
      return true;
    }
  }

  using Unit = typename Slots::Unit;
  static constexpr Unit kNoUnit{kNone, 0, 0};

  // Sends the rows of all tokens `begin` … `end` − 1 of ranks that the ring reaches, by ascending token.
  template <Team T>
  static WEFT_FN bool send(T& team, const Session& s, const Work& work, const ThreadPlan& p, std::uint32_t begin,
                           std::uint32_t end) {
    const Ring ring = MoeRingCombine::ring(s, work);
    const std::uint32_t most = work.exchange.tables.header->most_tokens, step = p.batches.step;
    const std::uint32_t owners = ring.partners();
    if (end > most) end = most;
    if (owners == 0) return true;
    const auto unit_of = [&](std::uint32_t i) -> Unit { return {i / owners, ring.partner(i % owners), 0}; };
    const std::uint32_t begin_unit = begin * owners + p.batches.first + p.batches.warp;
    Unit last = kNoUnit;  // whose row is under way, but is not announced
    // The table's entries are asked for one row ahead.
    Loaded<T> next = Slots::template load<T>(work, unit_of(begin_unit), p.batches.lane);
    for (std::uint32_t i = begin_unit; i < end * owners; i += step) {
      const Unit unit = unit_of(i);
      const Loaded<T> loaded = next;
      next = Slots::template load<T>(work, unit_of(i + step), p.batches.lane);
      if (unit.token >= loaded.owner_tokens || loaded.count() == EntryCount::kNoRow) continue;
      if (in_rounds && !Slots::is_last_in(work.rounds.experts_of(work.phases), EntryCount::of(loaded.word))) continue;
      // A row is announced one row later, as in MoeRingDispatch: a release waits for stores that are under way.
      const bool good = Slots::is_made(work.exchange.shape, loaded)
                            ? copy_row(team, s, work, p.batches.lane, unit, loaded, last)
                            : send_row(team, s, work, p.batches.lane, unit, loaded, last);
      if (!good) return false;
      last = unit;
    }
    announce(team, s, work, p.batches.lane, last);
    return true;
  }

  // A row by rank is copied as it is. One with a NaN keeps its bits, but all sums of a NaN are alike.
  template <Team T>
  static WEFT_FN bool copy_row(T& team, const Session& s, const Work& work, std::uint32_t lane, const Unit& unit,
                               const Loaded<T>& loaded, Unit& last) {
    const std::uint32_t packs = work.exchange.shape.combine_packs;
    RowPieces<T> pieces{team, packs, expert_rows(work, lane, loaded, 1)};
    team.template await_reads<0>();  // of the row before
    team.sync_lanes();
    pieces.begin(T::kStagePlaces);
    announce(team, s, work, lane, last);
    if (!await_place(team, s, work, lane, unit)) return false;
    team.fence_bulk();  // behind the credit
    Pack* const to = ring(s, work).row(unit.owner, s.rank(), unit.token);
    for (std::uint32_t pack = 0, i = 0; pack < packs; pack += kPiecePacks<T>, ++i) {
      const std::uint32_t place = i % T::kStagePlaces, left = packs - pack;
      team.await_load(place);
      if (lane == 0) team.store_bulk(to + pack, place, (left < kPiecePacks<T> ? left : kPiecePacks<T>)*sizeof(Pack));
      team.commit_stores();
      if (i == 0) continue;
      team.template await_reads<1>();  // of the piece before
      team.sync_lanes();
      pieces.ask();
    }
    return true;
  }
  template <Team T>
  static WEFT_FN void announce(T& team, const Session& s, const Work& work, std::uint32_t lane, Unit& last) {
    const Unit unit = last;
    last = kNoUnit;
    if (unit.token == kNone || lane != 0) return;
    team.template await_stores<0>();
    ring(s, work).announce(team, unit.owner, unit.token, RowState::is_whole);
  }

  // The first `count` of the experts' rows.
  template <Team T>
  static WEFT_FN RowSources<T> expert_rows(const Work& work, std::uint32_t lane, const Loaded<T>& loaded,
                                           std::uint32_t count) {
    return RowSources<T>::of(lane, count, [&](std::uint32_t j) {
      return static_cast<const Pack*>(work.input) +
             std::uint64_t{loaded.row.own[j]} * work.exchange.shape.combine_packs;
    });
  }
  // Waits until the unit's place is free. False when the call has failed.
  template <Team T>
  static WEFT_FN bool await_place(T& team, const Session& s, const Work& work, std::uint32_t lane, const Unit& unit) {
    const Ring ring = MoeRingCombine::ring(s, work);
    const std::uint32_t before = token_before(team, work, lane, unit, ring.places());
    return before == kNone || ring.await_credit(team, unit.owner, before);
  }

  template <Team T>
  static WEFT_FN bool send_row(T& team, const Session& s, const Work& work, std::uint32_t lane, const Unit& unit,
                               const Loaded<T>& loaded, Unit& last) {
    const ExchangeShape& shape = work.exchange.shape;
    const Ring ring = MoeRingCombine::ring(s, work);
    RowPieces<T> pieces{team, shape.combine_packs, expert_rows(work, lane, loaded, loaded.count())};
    pieces.begin(T::kStagePlaces);
    announce(team, s, work, lane, last);  // in front of waits: the receiver's credits may wait for it
    if (!await_place(team, s, work, lane, unit)) return false;
    Weighed<T> weighed = loaded;
    if (!await_weights<T>(team, s, work, lane, unit, weighed)) return false;
    Pack* to = ring.row(unit.owner, s.rank(), unit.token);
    team.settle(to);  // else it is computed anew for each pack (docs/notes/0058-instructions-of-combine.md)
    for (std::uint32_t first = lane; first < shape.combine_packs + lane; first += kPiecePacks<T>) {
      Pack sum[kPacksAtOnce<T>];
      add_experts(team, shape, lane, weighed, pieces, sum);
      WEFT_UNROLL
      for (std::uint32_t j = 0; j < kPacksAtOnce<T>; ++j) {
        const std::uint32_t pack = first + j * T::kLanes;
        // Encoded as in slots, so that both give the same bits.
        using Wire = typename Slots::Wire;
        if (pack < shape.combine_packs) team.store(to + pack, Wire::template encode<T::kAtomicBytes>(sum[j], s.epoch));
      }
    }
    team.sync_lanes();
    return true;
  }
  // A unit's table entries with their weights, which may still be on their way.
  template <class T>
  using Weighed = std::conditional_t<late, Loaded<T>, const Loaded<T>&>;
  template <Team T>
  static WEFT_FN bool await_weights(T& team, const Session& s, const Work& work, std::uint32_t lane, const Unit& unit,
                                    Weighed<T>& weighed) {
    if constexpr (late) {
      return await_late_weights(team, s, work, lane, unit.owner, unit.token, weighed.count(), weighed.weight);
    } else {
      return true;
    }
  }
  // Adds up the next piece of all experts' rows of a token.
  template <Team T>
  static WEFT_FN void add_experts(T& team, const ExchangeShape& shape, std::uint32_t lane, const Loaded<T>& loaded,
                                  RowPieces<T>& pieces, Pack (&sum)[kPacksAtOnce<T>]) {
    Sums<T> sums(loaded.count() != 0);
    for (std::uint32_t k = 0; k < loaded.count(); ++k) {
      const float weight = shape.weighted ? bits_of<float>(loaded.weight.get(team, k)) : 1.0f;
      pieces.take(lane, [&](std::uint32_t j, const Pack& in) { sums.add(j, in, weight); });
    }
    WEFT_UNROLL
    for (std::uint32_t j = 0; j < kPacksAtOnce<T>; ++j) sum[j] = R::finish(sums.own[j]);
  }

  // The token whose row lies in the place of the unit's; kNone: there is none. Tokens that did not come here have no
  // row. Nothing orders their credits and those of other rows, so a sender must not wait for them.
  template <Team T>
  static WEFT_FN std::uint32_t token_before(T& team, const Work& work, std::uint32_t lane, const Unit& unit,
                                            std::uint32_t places) {
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

  // A rank's knowledge of one of its tokens: the ranks that return a row, and its own experts' rows.
  template <class T>
  struct Mine {
    RankSet answering;
    Loaded<T> own;  // none if this rank's row flows, or if it has none
  };
  template <Team T>
  static WEFT_FN Mine<T> load_mine(const Session& s, const Work& work, std::uint32_t lane, std::uint32_t token,
                                   std::uint32_t end) {
    Mine<T> mine{};
    if (token >= end) return mine;
    mine.answering = work.exchange.tables.answering[token];
    if (!ring(s, work).carries_own) mine.own = Slots::template load<T>(work, {token, s.rank(), 0}, lane);
    return mine;
  }

  // Adds up the rows of this rank's tokens `begin` … `end` − 1, by ascending token.
  template <Team T>
  static WEFT_FN bool receive(T& team, const Session& s, const Work& work, const ThreadPlan& p, std::uint32_t begin,
                              std::uint32_t end) {
    const std::uint32_t tokens = work.exchange.tables.header->tokens[s.rank()], lane = p.batches.lane;
    const Ring ring = MoeRingCombine::ring(s, work);
    const std::uint32_t first = begin + p.batches.first + p.batches.warp;
    Mine<T> next = load_mine<T>(s, work, lane, first, end);  // one token ahead
    for (std::uint32_t token = first; token < end; token += p.batches.step) {
      const Mine<T> mine = next;
      next = load_mine<T>(s, work, lane, token + p.batches.step, end);
      if (!add_rows(team, s, work, lane, token, mine)) return false;
      if (token + ring.places() >= tokens) continue;
      for (std::uint32_t rank = lane; rank < s.size(); rank += T::kLanes) {
        if (mine.answering.has(rank) && ring.reaches(rank)) ring.give_credit(team, rank, token);
      }
    }
    return true;
  }

  // Waits for the rows of all ranks that answer, and adds them up. If this rank's own row does not flow, it is made of
  // its experts' rows here, to the same bits; by rank it is there already. False when the call has failed.
  template <Team T>
  static WEFT_FN bool add_rows(T& team, const Session& s, const Work& work, std::uint32_t lane, std::uint32_t token,
                               const Mine<T>& mine) {
    const ExchangeShape& shape = work.exchange.shape;
    const Ring ring = MoeRingCombine::ring(s, work);
    const Packs output = Slots::row(shape, work.output, token);
    const bool makes_own = !ring.carries_own && !Slots::is_made(shape, mine.own) && mine.answering.has(s.rank());
    RowPieces<T> pieces{team, shape.combine_packs, expert_rows(work, lane, mine.own, makes_own ? mine.own.count() : 0)};
    RowSources<T>& rows = pieces.rows;
    const std::uint32_t made = rows.count;  // rows of this rank's experts; the rows of ranks follow, by rank
    std::uint32_t lower = 0;                // how many of these are of lower ranks
    for (std::uint32_t of = 0; of < s.size(); ++of) {
      if (!mine.answering.has(of) || (makes_own && of == s.rank())) continue;
      lower += of < s.rank() ? 1 : 0;
      rows.append(lane,
                  ring.reaches(of) ? ring.row(s.rank(), of, token) : expert_rows(work, lane, mine.own, 1).get(team, 0));
    }
    pieces.begin(made);
    Weighed<T> own = mine.own;
    if (makes_own && !await_weights<T>(team, s, work, lane, {token, s.rank(), 0}, own)) return false;
    if (!ring.await_rows(team, lane, mine.answering, token)) return false;
    team.sync_lanes();
    team.fence_bulk();
    pieces.begin(T::kStagePlaces);
    for (std::uint32_t first = lane; first < shape.combine_packs + lane; first += kPiecePacks<T>) {
      Pack own_sum[kPacksAtOnce<T>]{};
      if (makes_own) add_experts(team, shape, lane, own, pieces, own_sum);
      Sums<T> sums(mine.answering.count() != 0 || work.residual != nullptr);
      const auto add = [&](std::uint32_t j, const Pack& in) { R::add(sums.own[j], in); };
      for (std::uint32_t i = 0; i < lower; ++i) pieces.take(lane, add);
      if (makes_own) {
        WEFT_UNROLL
        for (std::uint32_t j = 0; j < kPacksAtOnce<T>; ++j) add(j, own_sum[j]);
      }
      for (std::uint32_t i = made + lower; i < rows.count; ++i) pieces.take(lane, add);
      WEFT_UNROLL
      for (std::uint32_t j = 0; j < kPacksAtOnce<T>; ++j) {
        const std::uint32_t pack = first + j * T::kLanes;
        if (pack >= shape.combine_packs) break;
        if (work.residual != nullptr) R::add(sums.own[j], Slots::row(shape, work.residual, token).load(pack));
        output.store(pack, R::finish(sums.own[j]));
      }
    }
    return true;
  }

  // A lane's sums of a piece. They begin at −0, which changes no number that is added: so the first one needs no case
  // of its own. A sum of nothing is +0.
  template <class T>
  struct Sums {
    typename R::Accumulator own[kPacksAtOnce<T>];

    WEFT_FN explicit Sums(bool of_something) {
      const float first = of_something ? -0.0f : 0.0f;
      WEFT_UNROLL
      for (typename R::Accumulator& sum : own) {
        WEFT_UNROLL
        for (float& value : sum.value) value = first;
      }
    }
    WEFT_FN void add(std::uint32_t j, const Pack& row, float weight) {
      WEFT_UNROLL
      for (std::uint32_t i = 0; i < R::kElements; ++i) {
        own[j].value[i] = multiply_add(weight, Element<type>::widen(R::element(row, i)), own[j].value[i]);
      }
    }
  };
};

}  // namespace weft::detail
