// Dispatch: every rank sends its routing to every rank, and each token once to each rank that holds one of its experts.
// Receivers compute where rows go, in (source rank, token) order, from what the sources have counted.
#pragma once

#include <cstdint>

#include "algorithms/moe_places.hpp"
#include "algorithms/moe_rows.hpp"

namespace weft::detail {

template <class Row>
struct MoeDispatch : MoeFrame<DispatchWork> {
  using Frame = MoeFrame<DispatchWork>;

  // Rows, records and counts are units of one sequence, so that no warp sends one kind after another where there are
  // warps enough for all: first the records, then the counts, then the rows.
  struct SendPlan {
    std::uint32_t records, records_and_counts, all;  // units
    std::uint32_t sharers;                           // neighbouring lanes that count for one expert
  };
  // A unit to send: entry `part` of a token's record, unit `part` of its row, or counts from expert `part` on.
  struct Sent {
    std::uint32_t token, part;
  };
  struct Received {
    std::uint32_t token, sender, part;
  };
  struct Places : Frame::Places {
    SendPlan plan;
    Sent sent;          // the first unit of this warp
    Received received;  // likewise
  };
  // Divisions take long, and here the kernel before still runs.
  template <Team T>
  static WEFT_FN Places places(T& team, const Call& call, const Work& work) {
    Places p{Frame::places(team, call, work), {}, {}, {}};
    if (team.block_rank() == 0) return p;
    p.plan = plan_of<T>(work);
    p.sent = sent<T>(work, p.plan, p.share.first);
    p.received = received<T>(call, work, p.share.first);
    settle_both(team, p.sent.token, p.sent.part);
    settle_both(team, p.received.token, p.received.part);
    return p;
  }
  template <Team T>
  static WEFT_FN void settle_both(T& team, std::uint32_t& a, std::uint32_t& b) {
    std::uint64_t both = static_cast<std::uint64_t>(a) << 32 | b;
    team.settle(both);
    a = static_cast<std::uint32_t>(both >> 32), b = static_cast<std::uint32_t>(both);
  }
  template <Team T>
  static WEFT_FN SendPlan plan_of(const Work& work) {
    const ExchangeShape& shape = work.exchange.shape;
    SendPlan plan{.records = work.tokens * shape.top_k, .records_and_counts = 0, .all = 0, .sharers = 1};
    while (plan.sharers < T::kLanes && plan.sharers * 32 < plan.records) plan.sharers *= 2;
    const std::uint32_t warp_experts = T::kLanes / plan.sharers;
    plan.records_and_counts = plan.records + (shape.experts + warp_experts - 1) / warp_experts;
    plan.all = plan.records_and_counts + work.tokens * Row::template units<T>(shape);
    return plan;
  }
  template <Team T>
  static WEFT_FN Sent sent(const Work& work, const SendPlan& plan, std::uint32_t unit) {
    const ExchangeShape& shape = work.exchange.shape;
    if (unit < plan.records) return {unit / shape.top_k, unit % shape.top_k};
    if (unit < plan.records_and_counts) return {0, (unit - plan.records) * (T::kLanes / plan.sharers)};
    const std::uint32_t units = Row::template units<T>(shape);
    return {(unit - plan.records_and_counts) / units, (unit - plan.records_and_counts) % units};
  }
  template <Team T>
  static WEFT_FN Received received(const Call& call, const Work& work, std::uint32_t unit) {
    const std::uint32_t units = Row::template units<T>(work.exchange.shape), row = unit / units;
    const std::uint32_t turn = call.rank + row % call.size;
    return {row / call.size, turn < call.size ? turn : turn - call.size, unit % units};
  }

  template <int phase, Team T>
  static WEFT_FN bool run(T& team, const Session& s, const Places& p, const Early&) {
    const Work& work = *p.work;
    if constexpr (phase == 0) {
      if (team.block_rank() == 0) return control_send(team, s, work, p.header);
      send(team, s, p);
      return true;
    } else {
      if (team.block_rank() == 0) return control_receive(team, s, work, p.header);
      return receive(team, s, p);
    }
  }

  static WEFT_FN TopK topk_of(const Work& work) { return {work.ids, work.exchange.shape.experts, work.wide_ids}; }
  static WEFT_FN DispatchArea area(const Session& s, const Work& work, std::uint32_t owner, std::uint32_t sender) {
    return DispatchArea::of(s, work.exchange, owner, sender);
  }

  template <Team T>
  static WEFT_FN bool control_send(T& team, const Session& s, const Work& work, const HeaderPlace& header) {
    const ExchangeShape& shape = work.exchange.shape;
    if (team.thread_rank() == 0 && work.exchange.tables.header->waiting == 1 && !work.discard) {
      report(team, id_of(s), {.code = Errc::in_flight});
      return false;
    }
    Handshake::send(team, s, header);
    for (std::uint32_t rank = team.thread_rank(); rank < s.size(); rank += team.size()) {
      team.store(area(s, work, rank, s.rank()).tokens(), FlaggedWord::encode(work.tokens, s.epoch));
    }
    // Lines are not put back to rest. One token that this call does not have is written in every call, in turn, so that
    // no line is older than a round of the tokens, and none can be taken for one of a later round of the epochs.
    const std::uint32_t token = s.epoch / kBanks % shape.tokens;
    if (token < work.tokens) return true;
    for (std::uint32_t i = team.thread_rank(); i < s.size() * shape.top_k; i += team.size()) {
      Pack* const record = area(s, work, i / shape.top_k, s.rank()).records(token) + i % shape.top_k;
      team.store(record, Line::encode<T::kAtomicBytes>({{kNone, 0, 0, 0}}, s.epoch));
    }
    return true;
  }

  template <Team T>
  static WEFT_FN void send(T& team, const Session& s, const Places& p) {
    const Work& work = *p.work;
    Sent part = p.sent;
    for (std::uint32_t unit = p.share.first; unit < p.plan.all; part = sent<T>(work, p.plan, unit)) {
      if (unit < p.plan.records) {
        send_record(team, s, work, p.share.lane, part);
      } else if (unit < p.plan.records_and_counts) {
        send_counts(team, s, work, p.share.lane, part.part, p.plan.sharers);
      } else {
        send_row(team, s, work, p.share.lane, part);
      }
      unit += p.share.step;
    }
  }

  // How many rows the experts from `first` on get from here.
  template <Team T>
  static WEFT_FN void send_counts(T& team, const Session& s, const Work& work, std::uint32_t lane, std::uint32_t first,
                                  std::uint32_t sharers) {
    const ExchangeShape& shape = work.exchange.shape;
    const std::uint32_t expert = first + lane / sharers;
    const std::uint32_t own = topk_of(work).count(expert, lane % sharers, sharers, work.tokens * shape.top_k);
    const std::uint32_t count = team.sum_of(own, sharers);
    if (lane % sharers != 0 || expert >= shape.experts) return;
    const ExpertHome home = home_of(work.exchange, expert);
    team.store(area(s, work, home.rank, s.rank()).counts() + home.local, FlaggedWord::encode(count, s.epoch));
  }

  template <Team T>
  static WEFT_FN void send_record(T& team, const Session& s, const Work& work, std::uint32_t lane, const Sent& entry) {
    const ExchangeShape& shape = work.exchange.shape;
    const TopK topk = topk_of(work);
    const std::uint32_t i = entry.token * shape.top_k + entry.part;
    const std::uint32_t expert = topk.at(i);
    const ExpertHome home = expert != kNone ? home_of(work.exchange, expert) : ExpertHome{kNone, 0};
    const std::uint32_t ordinal = team.sum_of(topk.count(expert, lane, T::kLanes, i), T::kLanes);
    const std::uint32_t weight = shape.weighted ? bits_of<std::uint32_t>(work.weights[i]) : 0;
    for (std::uint32_t rank = lane; rank < s.size(); rank += T::kLanes) {
      const std::uint32_t place = rank == home.rank ? RoutingRecord::make_place(home.local, ordinal) : kNone;
      Pack* const record = area(s, work, rank, s.rank()).records(entry.token) + entry.part;
      team.store(record, Line::encode<T::kAtomicBytes>({{place, weight, 0, 0}}, s.epoch));
    }
  }

  template <Team T>
  static WEFT_FN void send_row(T& team, const Session& s, const Work& work, std::uint32_t lane, const Sent& row) {
    const ExchangeShape& shape = work.exchange.shape;
    const TopK topk = topk_of(work);
    RankSet to{};
    for (std::uint32_t k = 0; k < shape.top_k; ++k) {
      const std::uint32_t expert = topk.at(row.token * shape.top_k + k);
      if (expert != kNone) to.add(home_of(work.exchange, expert).rank);
    }
    if (row.part == 0 && lane == 0) work.exchange.tables.answering[row.token] = to;
    Row::send(team, s, work, row.token, row.part, lane, to);
  }

  template <Team T>
  static WEFT_FN bool control_receive(T& team, const Session& s, const Work& work, const HeaderPlace& header) {
    if (!Handshake::compare(team, s, header, 1)) return false;
    if (!tell_counts(team, s, work)) return false;
    if (team.thread_rank() == 0) work.exchange.tables.header->waiting = 1;
    return true;
  }

  template <Team T>
  static WEFT_FN bool receive(T& team, const Session& s, const Places& p) {
    const Work& work = *p.work;
    const WarpShare& share = p.share;
    const ExchangeShape& shape = work.exchange.shape;
    Dealt<T, kMaxRanks> tokens{};
    bool good = true;
    tokens.each(share.lane, s.size(), [&](std::uint32_t rank, std::uint32_t& count) {
      std::uint64_t word = 0;
      const std::uint64_t* const from = area(s, work, s.rank(), rank).tokens();
      const auto arrived = [&] {
        word = team.load(from);
        return FlaggedWord::arrived(word, s.epoch);
      };
      good = good && wait(team, s, {.phase = 1}, arrived, [&] { return rank; });
      count = FlaggedWord::decode(word);
    });
    if (!team.all_lanes(good)) return false;
    std::uint32_t most = 0;
    for (std::uint32_t rank = 0; rank < s.size(); ++rank) {
      const std::uint32_t count = tokens.get(team, rank);
      if (count > most) most = count;
      if (share.first != 0 || share.lane != 0) continue;
      work.exchange.tables.header->tokens[rank] = count;
      if (work.source_tokens != nullptr) work.source_tokens[rank] = static_cast<std::int32_t>(count);
    }
    if (share.first == 0 && share.lane == 0) work.exchange.tables.header->most_tokens = most;

    const std::uint32_t all = most * s.size() * Row::template units<T>(shape);
    Received unit = p.received;
    for (std::uint32_t i = share.first; i < all; unit = received<T>(*s.call, work, i)) {
      i += share.step;
      if (unit.token >= tokens.get(team, unit.sender)) continue;
      Entries<T> entries{};
      if (!find_entries(team, s, work.exchange, share.lane, unit.sender, unit.token, entries)) return false;
      if (unit.part == 0) note_entries(team, work, share.lane, unit.sender, unit.token, entries);
      if (entries.here == 0) continue;
      const auto each_output = [&](auto store) {
        for (std::uint32_t k = 0; k < shape.top_k; ++k) {
          if ((entries.kept >> k & 1u) != 0) store(entries.row.get(team, k));
        }
      };
      Pack* const row = area(s, work, s.rank(), unit.sender).row(unit.token);
      if (!Row::receive(team, s, work, row, unit.sender, unit.part, share.lane, each_output)) return false;
    }
    return true;
  }
};

}  // namespace weft::detail
