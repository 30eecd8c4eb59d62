// The first half of dispatch: every rank sends its routing to every rank, and each token once to each rank that holds
// one of its experts.
#pragma once

#include <cstdint>

#include "ops/moe/moe_rows.hpp"

namespace weft::detail {

// Records, counts and rows are units of one sequence: with enough warps none sends two kinds. The former two count
// entries that a few replicas serve. Input is loaded ahead, a first unit's beside the epoch. `tallies`: blocks have
// sent records and counts (moe_tally.hpp). `in_rounds`: a unit of rows is a token in a round, in the order of rounds.
template <class Row, bool in_rounds, bool tallies>
struct MoeSend {
  template <class T>
  static constexpr std::uint32_t kWanted = T::kLanes < 4 ? T::kLanes : 4;  // entries of a record, or replicas
  static constexpr std::uint32_t kIds = 8;                                 // that a lane loads at once

  struct Plan {
    std::uint32_t record_units;                      // of a token
    std::uint32_t records, records_and_counts, all;  // units
    std::uint32_t row_sharers;                       // warps that share a row
    std::uint32_t tokens;
  };
  // The units of a warp: first, first + step, … below end.
  struct Units {
    std::uint32_t first, step, end;
  };
  // A token's entries from `part` on, for its records; or the `part`-th warp's share of its row; or counts from replica
  // `part` on.
  struct Unit {
    std::uint32_t token, part;
    std::uint32_t round = 0;  // of a row: to ranks that need it in this round first
  };
  template <class T>
  struct Loaded {
    TopK::Id id[kIds];  // of entries among which is counted, dealt to the lanes
    // Id of this lane's entry: entry `lane` of the token, or entry `lane % kWanted` of a record's kWanted.
    TopK::Id own_id;
    std::uint32_t weight;  // record: its bits
    typename Row::template Given<T> given;
  };

  template <Team T>
  static WEFT_FN Plan plan(const DispatchWork& work, std::uint32_t warps, bool rows_alone) {
    const ExchangeShape& shape = work.exchange.shape;
    Plan plan{};
    plan.record_units = (shape.top_k + kWanted<T> - 1) / kWanted<T>;
    if (!tallies) {
      plan.records = work.tokens * plan.record_units;
      plan.records_and_counts = plan.records + (shape.replicas + kWanted<T> - 1) / kWanted<T>;
    }
    const std::uint32_t others = rows_alone ? 0 : plan.records_and_counts, left = warps > others ? warps - others : 1;
    plan.tokens = work.tokens;
    const std::uint32_t rows = in_rounds ? work.tokens * work.rounds.count : work.tokens;
    plan.row_sharers = row_sharers<T>(Row::template items<T>(shape), rows, left);
    plan.all = plan.records_and_counts + rows * plan.row_sharers;
    return plan;
  }
  // `rows_alone`: some warps send rows and nothing else. Then `rows` are the units of such a warp (kNone: it is none),
  // and `share` the units of a warp that sends everything else.
  static WEFT_FN Units units(const Plan& plan, const WarpShare& share, const WarpShare& rows, bool rows_alone) {
    if (!rows_alone) return {share.first, share.step, plan.all};
    if (rows.first == kNone) return {share.first, share.step, plan.records_and_counts};
    return {plan.records_and_counts + rows.first, rows.step, plan.all};
  }
  template <Team T>
  static WEFT_FN Unit unit(const Plan& plan, std::uint32_t i) {
    if (i < plan.records) return {i / plan.record_units, i % plan.record_units * kWanted<T>};
    if (i < plan.records_and_counts) return {0, (i - plan.records) * kWanted<T>};
    const std::uint32_t row = (i - plan.records_and_counts) / plan.row_sharers;
    const std::uint32_t part = (i - plan.records_and_counts) % plan.row_sharers;
    if constexpr (!in_rounds) return {row, part};
    return {row % plan.tokens, part, row / plan.tokens};
  }
  // The number of entries among which a unit counts: for a record, the entries before it.
  static WEFT_FN std::uint32_t counted(const DispatchWork& work, const Plan& plan, const Unit& unit, std::uint32_t i) {
    return i < plan.records ? unit.token * work.exchange.shape.top_k + unit.part
                            : work.tokens * work.exchange.shape.top_k;
  }

  template <Team T>
  static WEFT_FN Loaded<T> load(const DispatchWork& work, std::uint32_t rank, const Plan& plan, const Unit& unit,
                                const Units& units, std::uint32_t lane) {
    const std::uint32_t i = units.first;
    const ExchangeShape& shape = work.exchange.shape;
    const TopK topk = TopK::of(work, rank);
    const std::uint32_t first = unit.token * shape.top_k, end = first + shape.top_k;
    Loaded<T> loaded{};
    if (i >= units.end) return loaded;
    if (i >= plan.records_and_counts) {
      loaded.own_id = topk.id(first + lane, end);
      if (!in_rounds) loaded.given = Row::template read<T>(work, unit.token, unit.part * T::kLanes + lane);
      return loaded;
    }
    const std::uint32_t among = counted(work, plan, unit, i);
    WEFT_UNROLL
    for (std::uint32_t j = 0; j < kIds; ++j) {
      if (j * T::kLanes < among) loaded.id[j] = topk.id(j * T::kLanes + lane, among);
    }
    if (i < plan.records) {
      const std::uint32_t own = first + unit.part + lane % kWanted<T>;
      loaded.own_id = topk.id(own, end);
      if (shape.carries_weights && own < end) loaded.weight = bits_of<std::uint32_t>(work.weights[own]);
    }
    return loaded;
  }

  template <Team T>
  static WEFT_FN void send(T& team, const Session& s, const DispatchWork& work, const Plan& plan, Unit first,
                           Units units, std::uint32_t lane, const Loaded<T>& prefetched) {
    Unit unit = first;
    Loaded<T> loaded = prefetched;
    std::uint32_t& i = units.first;
    while (i < units.end) {
      if (i < plan.records_and_counts) {
        const TopK topk = TopK::of(work, s.rank());
        const bool record = i < plan.records;
        const std::uint32_t among = counted(work, plan, unit, i), own = lane % kWanted<T>;
        const std::uint32_t replica = record ? topk.replica(loaded.own_id, among + own) : unit.part + own;
        std::uint32_t found = count_own(team, topk, lane, among, loaded.id, replica, record);
        if (record) {
          send_record(team, s, work, lane, unit, replica, found, loaded.weight);
        } else {
          send_counts(team, s, work, lane, replica, found);
        }
      } else {
        send_row(team, s, work, lane, unit, plan.row_sharers, loaded);
      }
      i += units.step;
      if (i >= units.end) return;
      unit = MoeSend::unit<T>(plan, i);
      loaded = load<T>(work, s.rank(), plan, unit, units, lane);
    }
  }

  // The number of the first `end` entries that the lane's `replica` serves; lanes kWanted apart have the same replica.
  // With `record`, also of the lower lanes' entries. All lanes count for each other. `id`: each lane's first ids.
  template <Team T>
  static WEFT_FN std::uint32_t count_own(T& team, const TopK& topk, std::uint32_t lane, std::uint32_t end,
                                         TopK::Id (&id)[kIds], std::uint32_t own, bool record) {
    std::uint32_t wanted[kWanted<T>], found[kWanted<T>] = {}, count = 0;
    WEFT_UNROLL
    for (std::uint32_t w = 0; w < kWanted<T>; ++w) wanted[w] = team.from_lane(own, w);
    for (std::uint32_t first = 0;;) {
      topk.choose(first + lane, T::kLanes, id);
      WEFT_UNROLL
      for (std::uint32_t j = 0; j < kIds; ++j) {
        if (first + j * T::kLanes >= end) break;
        WEFT_UNROLL
        for (std::uint32_t w = 0; w < kWanted<T>; ++w) found[w] += id[j].low == wanted[w] && id[j].high == 0 ? 1 : 0;
      }
      first += kIds * T::kLanes;
      if (first >= end) break;
      WEFT_UNROLL
      for (std::uint32_t j = 0; j < kIds; ++j) id[j] = topk.id(first + j * T::kLanes + lane, end);
    }
    WEFT_UNROLL
    for (std::uint32_t w = 0; w < kWanted<T>; ++w) {
      const std::uint32_t sum = team.sum_of(found[w], T::kLanes);
      if (lane % kWanted<T> == w) count += sum;
      if (record && w < lane % kWanted<T> && wanted[w] == own) ++count;
    }
    return count;
  }

  // Sends how many rows the replicas of the first kWanted lanes get from here.
  template <Team T>
  static WEFT_FN void send_counts(T& team, const Session& s, const DispatchWork& work, std::uint32_t lane,
                                  std::uint32_t replica, std::uint32_t count) {
    if (lane >= kWanted<T> || replica >= work.exchange.shape.replicas) return;
    const ExpertHome home = home_of(work.exchange, replica);
    team.store(DispatchArea::of(s, work.exchange, home.rank, s.rank()).counts() + home.local,
               FlaggedWord::encode(count, s.epoch));
  }

  // Sends the lane's entry to every rank: lanes kWanted apart have the same entry, for different ranks.
  template <Team T>
  static WEFT_FN void send_record(T& team, const Session& s, const DispatchWork& work, std::uint32_t lane,
                                  const Unit& unit, std::uint32_t replica, std::uint32_t ordinal,
                                  std::uint32_t weight) {
    const std::uint32_t k = unit.part + lane % kWanted<T>;
    if (k >= work.exchange.shape.top_k) return;
    const std::uint32_t told = work.exchange.shape.carries_weights ? weight : k;
    const SentRecord record = SentRecord::of(work, unit.token, k, replica, ordinal, told);
    for (std::uint32_t rank = lane / kWanted<T>; rank < s.size(); rank += T::kLanes / kWanted<T>)
      record.send(team, s, work, rank);
  }

  template <Team T>
  static WEFT_FN void send_row(T& team, const Session& s, const DispatchWork& work, std::uint32_t lane,
                               const Unit& unit, std::uint32_t sharers, const Loaded<T>& loaded) {
    const ExchangeShape& shape = work.exchange.shape;
    const ExpertRange experts = in_rounds ? work.rounds.experts(unit.round) : ExpertRange{};
    RankSet to = ranks_of<in_rounds>(team, s, work, lane, unit.token, loaded.own_id, experts.end);
    const bool last = !in_rounds || unit.round + 1 == work.rounds.count;
    if (last && unit.part == 0 && lane == 0) work.exchange.tables.answering[unit.token] = to;
    const std::uint32_t count = Row::template items<T>(shape), step = sharers * T::kLanes;
    typename Row::template Given<T> given = loaded.given;
    const bool own_stays = own_rows_stay<tallies>(work);
    if (own_stays && to.without(s.rank()).empty()) return;
    if constexpr (in_rounds) {
      if (unit.round != 0) {
        to = to.without(ranks_of<true>(team, s, work, lane, unit.token, loaded.own_id, experts.begin));
      }
      if (to.empty()) return;
      given = Row::template read<T>(work, unit.token, unit.part * T::kLanes + lane);
    }
    for (std::uint32_t first = unit.part * T::kLanes; first < count; first += step) {
      const std::uint32_t item = first + lane;
      const typename Row::template Moving<T> moving = Row::encode(team, shape, given);
      given = Row::template read<T>(work, unit.token, item + step);  // the next one comes while this one goes
      for (std::uint32_t turn = own_stays ? 1 : 0; turn < s.size() && item < count; ++turn) {
        const std::uint32_t rank = rank_after(s.rank(), turn, s.size());
        if (!to.has(rank)) continue;
        Row::send(team, shape, DispatchArea::of(s, work.exchange, rank, s.rank()).row(unit.token), item, moving);
      }
    }
  }
};

}  // namespace weft::detail
