// The first half of dispatch: every rank sends its routing to every rank, and each token once to each rank that holds
// one of its experts.
#pragma once

#include <cstdint>

#include "algorithms/moe_rows.hpp"

namespace weft::detail {

// Rows, records and counts are units of one sequence, so that no warp sends one kind after another where there are
// warps enough for all: first the records, then the counts, then the rows. What a unit reads of the caller's is loaded
// before anything depends on it: for a warp's first unit beside the epoch.
template <class Row>
struct MoeSend {
  struct Plan {
    std::uint32_t records, records_and_counts, all;  // units
    std::uint32_t sharers;                           // neighbouring lanes that count for one replica
    std::uint32_t row_sharers;                       // warps that share a row
  };
  // Entry `part` of a token's record, the `part`-th warp's share of its row, or counts from replica `part` on.
  struct Unit {
    std::uint32_t token, part;
  };
  template <class T>
  struct Loaded {
    std::uint32_t id;      // record: of its entry
    std::uint32_t own_id;  // of the lane's first entry among those that are compared
    std::uint32_t weight;  // record: its bits
    typename Row::template Given<T> given;
  };

  template <Team T>
  static WEFT_FN Plan plan(const DispatchWork& work, const WarpShare& share) {
    const ExchangeShape& shape = work.exchange.shape;
    Plan plan{.records = work.tokens * shape.top_k,
              .records_and_counts = 0,
              .all = 0,
              .sharers = 1,
              .row_sharers = row_sharers<T>(Row::template items<T>(shape), work.tokens, share.step)};
    while (plan.sharers < T::kLanes && plan.sharers * 32 < plan.records) plan.sharers *= 2;
    const std::uint32_t warp_experts = T::kLanes / plan.sharers;
    plan.records_and_counts = plan.records + (shape.replicas + warp_experts - 1) / warp_experts;
    plan.all = plan.records_and_counts + work.tokens * plan.row_sharers;
    return plan;
  }
  template <Team T>
  static WEFT_FN Unit unit(const DispatchWork& work, const Plan& plan, std::uint32_t i) {
    const ExchangeShape& shape = work.exchange.shape;
    if (i < plan.records) return {i / shape.top_k, i % shape.top_k};
    if (i < plan.records_and_counts) return {0, (i - plan.records) * (T::kLanes / plan.sharers)};
    return {(i - plan.records_and_counts) / plan.row_sharers, (i - plan.records_and_counts) % plan.row_sharers};
  }

  template <Team T>
  static WEFT_FN Loaded<T> load(const DispatchWork& work, std::uint32_t rank, const Plan& plan, const Unit& unit,
                                std::uint32_t i, std::uint32_t lane) {
    const ExchangeShape& shape = work.exchange.shape;
    const TopK topk = TopK::of(work, rank);
    Loaded<T> loaded{.id = kNone, .own_id = kNone, .weight = 0, .given = {}};
    if (i >= plan.all) return loaded;
    if (i < plan.records) {
      loaded.id = topk.at(i);
      if (lane < i) loaded.own_id = topk.at(lane);
      if (shape.weighted) loaded.weight = bits_of<std::uint32_t>(work.weights[i]);
    } else if (i < plan.records_and_counts) {
      if (lane < plan.records) loaded.own_id = topk.at(lane);
    } else {
      if (lane < shape.top_k) loaded.own_id = topk.at(unit.token * shape.top_k + lane);
      loaded.given = Row::template read<T>(work, unit.token, unit.part * T::kLanes + lane);
    }
    return loaded;
  }

  template <Team T>
  static WEFT_FN void send(T& team, const Session& s, const DispatchWork& work, const Plan& plan, Unit first,
                           const WarpShare& share, const Loaded<T>& early) {
    Unit unit = first;
    Loaded<T> loaded = early;
    for (std::uint32_t i = share.first; i < plan.all;) {
      if (i < plan.records) {
        send_record(team, s, work, share.lane, unit, loaded);
      } else if (i < plan.records_and_counts) {
        send_counts(team, s, work, share.lane, unit.part, plan, loaded.own_id);
      } else {
        send_row(team, s, work, share.lane, unit, plan.row_sharers, loaded);
      }
      i += share.step;
      if (i >= plan.all) return;
      unit = MoeSend::unit<T>(work, plan, i);
      loaded = load<T>(work, s.rank(), plan, unit, i, share.lane);
    }
  }

  // How many rows the replicas from `first` on get from here.
  template <Team T>
  static WEFT_FN void send_counts(T& team, const Session& s, const DispatchWork& work, std::uint32_t lane,
                                  std::uint32_t first, const Plan& plan, std::uint32_t own_id) {
    const ExchangeShape& shape = work.exchange.shape;
    const std::uint32_t expert = first + lane / plan.sharers;
    std::uint32_t count = 0;
    if (plan.records <= T::kLanes) {  // one look at all of them, which lanes have had
      for (std::uint32_t i = 0; i < plan.records; ++i) count += team.from_lane(own_id, i) == expert ? 1 : 0;
    } else {
      const std::uint32_t own = TopK::of(work, s.rank()).count(expert, lane % plan.sharers, plan.sharers, plan.records);
      count = team.sum_of(own, plan.sharers);
    }
    if (lane % plan.sharers != 0 || expert >= shape.replicas) return;
    const ExpertHome home = home_of(work.exchange, expert);
    team.store(DispatchArea::of(s, work.exchange, home.rank, s.rank()).counts() + home.local,
               FlaggedWord::encode(count, s.epoch));
  }

  template <Team T>
  static WEFT_FN void send_record(T& team, const Session& s, const DispatchWork& work, std::uint32_t lane,
                                  const Unit& entry, const Loaded<T>& loaded) {
    const ExchangeShape& shape = work.exchange.shape;
    const std::uint32_t i = entry.token * shape.top_k + entry.part, expert = loaded.id;
    const ExpertHome home = expert != kNone ? home_of(work.exchange, expert) : ExpertHome{kNone, 0};
    const std::uint32_t earlier = TopK::of(work, s.rank()).count(expert, lane + T::kLanes, T::kLanes, i);
    const std::uint32_t ordinal = team.sum_of(earlier + (loaded.own_id == expert ? 1 : 0), T::kLanes);
    for (std::uint32_t rank = lane; rank < s.size(); rank += T::kLanes) {
      const std::uint32_t place = rank == home.rank ? RoutingRecord::make_place(home.local, ordinal) : kNone;
      Pack* const record = DispatchArea::of(s, work.exchange, rank, s.rank()).records(entry.token) + entry.part;
      team.store(record, Line::encode<T::kAtomicBytes>({{place, loaded.weight, 0, 0}}, s.epoch));
    }
  }

  // Ranks that have an expert of the token.
  template <Team T>
  static WEFT_FN RankSet ranks_of(T& team, const Session& s, const DispatchWork& work, std::uint32_t lane,
                                  std::uint32_t token, std::uint32_t own_id) {
    const ExchangeShape& shape = work.exchange.shape;
    RankSet own{};
    for (std::uint32_t k = lane; k < shape.top_k; k += T::kLanes) {
      const std::uint32_t expert = k == lane ? own_id : TopK::of(work, s.rank()).at(token * shape.top_k + k);
      if (expert != kNone) own.add(home_of(work.exchange, expert).rank);
    }
    RankSet all{};
    WEFT_UNROLL
    for (std::uint32_t first = 0; first < kMaxRanks; first += 32) {
      if (first < s.size()) all.put(first, team.or_of(own.word(first)));
    }
    return all;
  }

  template <Team T>
  static WEFT_FN void send_row(T& team, const Session& s, const DispatchWork& work, std::uint32_t lane,
                               const Unit& unit, std::uint32_t sharers, const Loaded<T>& loaded) {
    const ExchangeShape& shape = work.exchange.shape;
    const RankSet to = ranks_of(team, s, work, lane, unit.token, loaded.own_id);
    if (unit.part == 0 && lane == 0) work.exchange.tables.answering[unit.token] = to;
    const std::uint32_t count = Row::template items<T>(shape), step = sharers * T::kLanes;
    typename Row::template Given<T> given = loaded.given;
    for (std::uint32_t first = unit.part * T::kLanes; first < count; first += step) {
      const std::uint32_t item = first + lane;
      const typename Row::template Moving<T> moving = Row::encode(team, shape, given);
      given = Row::template read<T>(work, unit.token, item + step);  // the next one comes while this one goes
      for (std::uint32_t turn = 0; turn < s.size() && item < count; ++turn) {
        const std::uint32_t rank = s.rank() + turn < s.size() ? s.rank() + turn : s.rank() + turn - s.size();
        if (!to.has(rank)) continue;
        Row::send(team, shape, DispatchArea::of(s, work.exchange, rank, s.rank()).row(unit.token), item, moving);
      }
    }
  }
};

}  // namespace weft::detail
