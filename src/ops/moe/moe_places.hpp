// The places of dispatch's rows in the output. They follow from records (the expert of each entry, and its ordinal
// among its sender's entries for this expert) and from all senders' counts.
#pragma once

#include <cstdint>

#include "ops/moe/moe_routing.hpp"

namespace weft::detail {

// By a warp: a number that each rank below `end` has sent, 0 if the lane has not `one`. `at(rank)`: its place. Calls
// `take(rank, number)` for one rank after the other, and for up to three behind `end` with 0. Every look calls
// `beside()`. False when the call has failed.
template <Team T, class At, class Take, class Beside>
WEFT_FN bool each_number(T& team, const Session& s, bool one, std::uint32_t end, At at, Take take, Beside beside) {
  constexpr std::uint32_t kBatch = 4;
  for (std::uint32_t first = 0; first < end; first += kBatch) {
    std::uint64_t word[kBatch];
    std::uint32_t late = kNoPeer;
    const auto arrived = [&] {
      late = kNoPeer;
      WEFT_UNROLL
      for (std::uint32_t k = 0; k < kBatch; ++k) {
        word[k] = FlaggedWord::encode(0, s.epoch);
        if (first + k < end && one) word[k] = team.load(at(first + k));
      }
      beside();
      WEFT_UNROLL
      for (std::uint32_t k = 0; k < kBatch; ++k) late = FlaggedWord::arrived(word[k], s.epoch) ? late : first + k;
      return team.all_lanes(late == kNoPeer);
    };
    if (!wait(team, s, {.phase = 1, .warp = true}, arrived, [&] { return late; })) return false;
    WEFT_UNROLL
    for (std::uint32_t k = 0; k < kBatch; ++k) take(first + k, FlaggedWord::decode(word[k]));
  }
  return true;
}
// The counts of each lane's expert `local`.
template <Team T, class Take, class Beside>
WEFT_FN bool each_count(T& team, const Session& s, const ExchangeView& exchange, bool one, std::uint32_t local,
                        std::uint32_t end, Take take, Beside beside) {
  const std::uint64_t* const counts = DispatchArea::of(s, exchange, s.rank(), 0).counts();
  const auto at = [&](std::uint32_t rank) { return counts + DispatchArea::count_of(exchange, rank, local); };
  return each_number(team, s, one, end, at, take, beside);
}
// The same, added up.
template <Team T, class Beside>
WEFT_FN bool add_counts(T& team, const Session& s, const ExchangeView& exchange, bool one, std::uint32_t local,
                        std::uint32_t end, std::uint32_t& sum, Beside beside) {
  const auto add = [&](std::uint32_t, std::uint32_t count) { sum += count; };
  return each_count(team, s, exchange, one, local, end, add, beside);
}

// The sum of the values of this and of all lower lanes. By all lanes.
template <Team T>
WEFT_FN std::uint32_t sum_through(T& team, std::uint32_t lane, std::uint32_t value) {
  std::uint32_t through = value;
  for (std::uint32_t step = 1; step < T::kLanes; step *= 2) {
    const std::uint32_t lower = team.from_lane(through, lane >= step ? lane - step : lane);
    if (lane >= step) through += lower;
  }
  return through;
}

// The rows at which contiguous experts begin. A warp goes through the experts, one lane for each: it calls `take(first,
// count, begin)` in all lanes. Lane i has expert first + i, its rows and its first row. `end`: the first row behind all
// experts. False when the call has failed.
template <Team T, class Take>
WEFT_FN bool each_beginning(T& team, const Session& s, const ExchangeView& exchange, std::uint32_t lane,
                            std::uint32_t& end, Take take) {
  const ExchangeShape& shape = exchange.shape;
  end = 0;
  for (std::uint32_t first = 0; first < shape.local; first += T::kLanes) {
    std::uint32_t count = 0;
    const bool one = first + lane < shape.local;
    if (!add_counts(team, s, exchange, one, first + lane, s.size(), count, [] {})) return false;
    const std::uint32_t padded = (count + shape.alignment - 1) / shape.alignment * shape.alignment;
    const std::uint32_t through = sum_through(team, lane, padded);
    take(first, count, end + through - padded);
    end += team.from_lane(through, T::kLanes - 1);
  }
  return true;
}

// One token's entries whose experts this rank has.
template <Team T>
struct Entries {
  LaneArray<T, kMaxTopK> local;   // expert
  LaneArray<T, kMaxTopK> row;     // among the outputs
  LaneArray<T, kMaxTopK> weight;  // its bits
  std::uint32_t here;             // bit k: entry k is for this rank
  std::uint32_t kept;             // bit k: its row has room as well, and no other warp writes that row
};

// A token's records, dealt to the lanes of a warp.
template <Team T>
struct Records {
  Pack line[LaneArray<T, kMaxTopK>::kOwn];

  // Asks for the records; nothing here waits for them.
  WEFT_FN void load(T& team, const Session& s, const ExchangeView& exchange, std::uint32_t lane, std::uint32_t sender,
                    std::uint32_t token) {
    const Pack* const records = DispatchArea::of(s, exchange, s.rank(), sender).records(token);
    WEFT_UNROLL
    for (std::uint32_t j = 0; j < LaneArray<T, kMaxTopK>::kOwn; ++j) {
      if (j * T::kLanes >= exchange.shape.top_k) break;
      if (j * T::kLanes + lane < exchange.shape.top_k) line[j] = team.load(records + (j * T::kLanes + lane));
    }
  }
  // True when all records of this lane have come. `here` has the lane's own bits.
  WEFT_FN bool read(const Session& s, const ExchangeView& exchange, std::uint32_t lane, Entries<T>& entries) const {
    bool all = true;
    entries.here = 0;
    entries.row.each(lane, exchange.shape.top_k, [&](std::uint32_t k, std::uint32_t& ordinal, std::uint32_t j) {
      all &= Line::arrived<T::kAtomicBytes>(line[j], s.epoch);
      const Pack record = Line::decode(line[j]);
      const bool here = record.word[0] != kNone;
      entries.weight.own[j] = record.word[1];
      entries.local.own[j] = here ? RoutingRecord::local(record.word[0]) : kNone;
      ordinal = RoutingRecord::ordinal(record.word[0]);
      entries.here |= here ? 1u << k : 0;
    });
    return all;
  }
};

// Turns ordinals into rows. `beside`: as for add_counts. False when the call has failed.
template <Team T, class Beside>
WEFT_FN bool place_by_expert(T& team, const Session& s, const ExchangeView& exchange, std::uint32_t lane,
                             std::uint32_t sender, Entries<T>& entries, Beside beside) {
  const ExchangeShape& shape = exchange.shape;
  const bool masked = shape.layout == RowLayout::expert_masked;
  std::uint32_t kept = 0;
  WEFT_UNROLL
  for (std::uint32_t j = 0; j < LaneArray<T, kMaxTopK>::kOwn; ++j) {
    if (j * T::kLanes >= shape.top_k) break;
    const std::uint32_t k = j * T::kLanes + lane, local = entries.local.own[j];
    const bool one = k < shape.top_k && local != kNone;
    if (!add_counts(team, s, exchange, one, local, sender, entries.row.own[j], beside)) return false;
    if (one && entries.row.own[j] < shape.capacity) kept |= 1u << k;
    if (one && masked) entries.row.own[j] += local * shape.capacity;
  }
  if (!masked) {
    std::uint32_t end = 0;
    const auto take = [&](std::uint32_t first, std::uint32_t, std::uint32_t begin) {
      WEFT_UNROLL
      for (std::uint32_t j = 0; j < LaneArray<T, kMaxTopK>::kOwn; ++j) {  // lanes answer each other: none may leave
        const std::uint32_t of = entries.local.own[j] - first, at = team.from_lane(begin, of % T::kLanes);
        if (j * T::kLanes + lane < shape.top_k && of < T::kLanes) entries.row.own[j] += at;
      }
    };
    if (!each_beginning(team, s, exchange, lane, end, take)) return false;
    kept = 0;
    entries.row.each(lane, shape.top_k, [&](std::uint32_t k, std::uint32_t row, std::uint32_t) {
      kept |= (entries.here >> k & 1u) != 0 && row < shape.capacity ? 1u << k : 0;
    });
  }
  entries.kept = team.or_of(kept);
  return true;
}

// One row for all entries of a token, at the token's number.
template <Team T>
WEFT_FN void place_by_rank(const ExchangeView& exchange, std::uint32_t lane, std::uint32_t sender, std::uint32_t token,
                           Entries<T>& entries) {
  entries.kept = entries.here & (0 - entries.here);
  entries.row.each(lane, exchange.shape.top_k, [&](std::uint32_t, std::uint32_t& row, std::uint32_t) {
    row = sender * exchange.shape.source_rows + token;
  });
}

template <Team T, class Beside>
WEFT_FN bool place(T& team, const Session& s, const ExchangeView& exchange, std::uint32_t lane, std::uint32_t sender,
                   std::uint32_t token, Entries<T>& entries, Beside beside) {
  if (exchange.shape.layout != RowLayout::rank_major) {
    return place_by_expert(team, s, exchange, lane, sender, entries, beside);
  }
  place_by_rank(exchange, lane, sender, token, entries);
  return true;
}

// Whether this launch takes the token's row. The first round that needs a row takes it for all experts here. By all
// lanes.
template <bool in_rounds, Team T>
WEFT_FN bool comes_now(T& team, const DispatchWork& work, std::uint32_t lane, Entries<T>& entries) {
  if (!in_rounds || is_joined(work.phases)) return true;
  const ExpertRange experts = work.rounds.experts_of(work.phases);
  bool earlier = false, now = false;
  entries.local.each(lane, work.exchange.shape.top_k, [&](std::uint32_t, std::uint32_t expert, std::uint32_t) {
    earlier |= expert < experts.begin;
    now |= expert < experts.end;
  });
  return team.all_lanes(!earlier) && !team.all_lanes(!now);
}

// The last of a token's experts here. By all lanes.
template <Team T>
WEFT_FN std::uint32_t last_expert(T& team, const ExchangeShape& shape, std::uint32_t lane, Entries<T>& entries) {
  std::uint32_t last = 0;
  entries.local.each(lane, shape.top_k, [&](std::uint32_t, std::uint32_t local, std::uint32_t) {
    if (local != kNone && local > last) last = local;
  });
  return team.most_of(last);
}

// Tells the caller the experts of row `row` of the output, and their weights.
template <Team T>
WEFT_FN void put_ids(const DispatchWork& work, std::uint32_t lane, std::uint32_t row, Entries<T>& entries) {
  const ExchangeShape& shape = work.exchange.shape;
  entries.local.each(lane, shape.top_k, [&](std::uint32_t k, std::uint32_t local, std::uint32_t j) {
    const std::uint64_t at = std::uint64_t{row} * shape.top_k + k;
    work.local_ids[at] = static_cast<std::int32_t>(local);  // kNone: −1
    if (shape.carries_weights) work.local_weights[at] = local == kNone ? 0 : bits_of<float>(entries.weight.own[j]);
  });
}

// Notes the row for combine: by ascending expert, which is by ascending place among the outputs. Notes for the caller
// whose rows these are, and for which experts.
template <Team T>
WEFT_FN void note_entries(T& team, const DispatchWork& work, std::uint32_t lane, std::uint32_t sender,
                          std::uint32_t token, Entries<T>& entries) {
  const ExchangeShape& shape = work.exchange.shape;
  const RoutingTables& tables = work.exchange.tables;
  const bool by_rank = shape.layout == RowLayout::rank_major;
  const std::uint32_t noted = sender * shape.tokens + token, source = sender * shape.source_rows + token;
  EntryCount all{0, last_expert(team, shape, lane, entries)};
  LaneArray<T, kMaxTopK> before{};  // kept entries in front of each
  for (std::uint32_t other = 0; other < shape.top_k; ++other) {
    const bool kept = (entries.kept >> other & 1u) != 0;
    const std::uint32_t other_row = entries.row.get(team, other);
    WEFT_UNROLL
    for (std::uint32_t j = 0; j < LaneArray<T, kMaxTopK>::kOwn; ++j) {
      before.own[j] += kept && other_row < entries.row.own[j] ? 1 : 0;
    }
    all.count += kept ? 1 : 0;
  }
  entries.row.each(lane, shape.top_k, [&](std::uint32_t k, std::uint32_t row, std::uint32_t j) {
    if ((entries.kept >> k & 1u) == 0) return;
    const float weight = by_rank ? 1.0f : bits_of<float>(entries.weight.own[j]);
    tables.entries[std::uint64_t{noted} * shape.top_k + before.own[j]] = {row, weight};
    if (work.sources != nullptr) work.sources[row] = static_cast<std::int32_t>(source);
  });
  if (lane == 0) tables.entry_counts[noted] = entries.here != 0 ? all.word() : kNone;
  if (by_rank) put_ids(work, lane, source, entries);
}

// Tells the host a number of this dispatch, if the caller asks: word `i` of DispatchArgs::host_counts.
template <Team T>
WEFT_FN void tell_host(T& team, const Session& s, const DispatchWork& work, std::uint32_t i, std::uint32_t count) {
  const std::uint32_t stamp = s.epoch << 1 | 1u;
  if (work.host_counts != nullptr) team.store(work.host_counts + i, static_cast<std::uint64_t>(count) << 32 | stamp);
}

// Tells the caller everything about all rows except their contents. For the control block. False when the call has
// failed.
template <Team T>
WEFT_FN bool tell_counts(T& team, const Session& s, const DispatchWork& work) {
  const ExchangeView& exchange = work.exchange;
  const ExchangeShape& shape = exchange.shape;
  const auto overflows = [&](Misfit what, std::uint32_t expert, std::uint32_t rows) {
    if (rows <= shape.capacity || shape.drop) return false;
    report_misfit(team, id_of(s), {.code = Errc::overflow, .peer = s.call->channel->world_rank, .phase = 1},
                  {what, expert, rows, shape.capacity});
    return true;
  };
  const std::uint32_t lane = team.thread_rank() % T::kLanes;
  bool good = true;
  for (std::uint32_t first = team.thread_rank() - lane; first < shape.local; first += team.size()) {
    const std::uint32_t local = first + lane;
    std::uint32_t count = 0;
    if (!add_counts(team, s, exchange, local < shape.local, local, s.size(), count, [] {})) return false;
    if (local >= shape.local) continue;
    work.counts[local] = static_cast<std::int32_t>(count);
    tell_host(team, s, work, local, count);
    // Other lanes may have more to do, so this one goes on.
    if (shape.layout == RowLayout::expert_masked && overflows(Misfit::expert_rows, local, count)) good = false;
  }
  if (shape.layout != RowLayout::expert_contiguous || team.thread_rank() >= T::kLanes) return good;
  std::uint32_t end = 0;
  const auto take = [&](std::uint32_t first, std::uint32_t count, std::uint32_t begin) {
    const std::uint32_t local = first + lane;
    if (local >= shape.local) return;
    work.offsets[local] = static_cast<std::int32_t>(begin);
    for (std::uint32_t row = begin + count; work.sources != nullptr && row % shape.alignment != 0; ++row) {
      if (row < shape.capacity) work.sources[row] = -1;
    }
  };
  if (!each_beginning(team, s, exchange, lane, end, take)) return false;
  if (team.thread_rank() != 0) return true;
  work.offsets[shape.local] = static_cast<std::int32_t>(end);
  return !overflows(Misfit::rows_of_all, 0, end);
}

}  // namespace weft::detail
