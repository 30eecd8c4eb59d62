// The routing of a token on its way through a ring: in front of its row, a pack for each of its entries. It says the
// rank of the entry's expert, the entry's place (RoutingRecord::place) and its weight. All ranks get the same.
#pragma once

#include <cstdint>

#include "ops/moe/compact_rows.hpp"
#include "ops/moe/ring_rows.hpp"

namespace weft::detail {

// The entries of a token that is about to be sent, dealt to the lanes of its warp.
template <Team T>
struct SentEntries {
  LaneArray<T, kMaxTopK> rank, place, weight;  // rank: kNone for an entry of no expert
  RankSet to;                                  // ranks that get the row

  // Element j of the lane, as it travels.
  WEFT_FN Pack pack(std::uint32_t j) const { return {{rank.own[j], place.own[j], weight.own[j], 0}}; }
};

// Whether places follow from an entry's ordinal. By rank they do not.
WEFT_FN bool needs_ordinals(const ExchangeShape& shape) {
  return shape.layout != RowLayout::rank_major;
}

// By a warp. The tally has all entries of the tokens before `first_token`; entries of its block's tokens from there on
// are compared one by one. `compact`: it has their rows by rank, and entries get the ordinal of their token's row.
template <bool compact = false, Team T>
WEFT_FN SentEntries<T> find_entries(T& team, const Session& s, const DispatchWork& work, std::uint32_t lane,
                                    std::uint32_t first_token, std::uint32_t token) {
  const ExchangeShape& shape = work.exchange.shape;
  const TopK topk = TopK::of(work, s.rank());
  const std::uint32_t first = token * shape.top_k, end = first + shape.top_k;
  SentEntries<T> entries{};
  LaneArray<T, kMaxTopK> replica{}, ordinal{};
  replica.each(lane, shape.top_k, [&](std::uint32_t k, std::uint32_t& own, std::uint32_t j) {
    own = topk.replica(topk.id(first + k, end), first + k);
    entries.weight.own[j] = shape.carries_weights ? bits_of<std::uint32_t>(work.weights[first + k]) : k;
    if (!compact) ordinal.own[j] = own != kNone ? team.tally()[own] : 0;
  });
  const bool compares = !compact && needs_ordinals(shape);
  for (std::uint32_t m = first_token * shape.top_k; compares && m < end; m += T::kLanes) {
    const std::uint32_t of_lane = topk.replica(topk.id(m + lane, end), m + lane);
    for (std::uint32_t k = 0; k < shape.top_k; ++k) {
      const std::uint32_t own = replica.get(team, k);
      const bool before = m + lane < first + k && of_lane == own;
      const std::uint32_t lanes = team.or_of(before ? 1u << lane : 0);
      ordinal.add(lane, k, count_bits(lanes));
    }
  }
  RankSet own{};
  entries.rank.each(lane, shape.top_k, [&](std::uint32_t, std::uint32_t& rank, std::uint32_t j) {
    rank = kNone;
    if (replica.own[j] == kNone) return;
    const ExpertHome home = home_of(work.exchange, replica.own[j]);
    rank = home.rank;
    entries.place.own[j] = RoutingRecord::make_place(home.local, ordinal.own[j]);
    own.add(rank);
  });
  if constexpr (compact) add_row_ordinals(team, s, work, lane, first_token, token, entries.rank, entries.place);
  WEFT_UNROLL
  for (std::uint32_t first_rank = 0; first_rank < kMaxRanks; first_rank += 32) {
    if (first_rank < s.size()) entries.to.put(first_rank, team.or_of(own.word(first_rank)));
  }
  return entries;
}

// Puts the token's routing into the head of its row.
template <StagedTeam T>
WEFT_FN void stage_entries(T& team, const ExchangeShape& shape, std::uint32_t lane, SentEntries<T>& entries) {
  entries.rank.each(lane, shape.top_k, [&](std::uint32_t k, std::uint32_t, std::uint32_t j) {
    team.stage(kHeadPlace, k, entries.pack(j));
  });
}

// The entries among all of a token whose experts this rank has. `entry(k, j)`: entry k of the token, as the head has
// it; it is element j of the lane.
template <Team T, class Entry>
WEFT_FN Entries<T> entries_here(T& team, const Session& s, const ExchangeShape& shape, std::uint32_t lane,
                                Entry entry) {
  Entries<T> entries{};
  std::uint32_t here = 0;
  entries.local.each(lane, shape.top_k, [&](std::uint32_t k, std::uint32_t& local, std::uint32_t j) {
    const Pack given = entry(k, j);
    const bool own = given.word[0] == s.rank();
    local = own ? RoutingRecord::local(given.word[1]) : kNone;
    entries.row.own[j] = RoutingRecord::ordinal(given.word[1]);
    entries.weight.own[j] = given.word[2];
    here |= own ? 1u << k : 0;
  });
  entries.here = team.or_of(here);
  return entries;
}

// Blocks keep a table in their tally: for each local expert and each of some senders, the entries of lower senders, and
// for contiguous experts the row at which the expert begins. So no row waits for counts of its own. Compact rows have
// one line, of the rows of lower senders.
struct RowTable {
  std::uint32_t* words;
  std::uint32_t first, count;  // senders

  WEFT_FN std::uint32_t& of(std::uint32_t local, std::uint32_t sender) const {
    return words[local * count + sender - first];
  }
  WEFT_FN bool exists() const { return words != nullptr; }
};
// The table of a block that only receives, or that sends rows to its own rank. It does not exist if it is not needed,
// or if the tally has no room for it.
template <bool compact = false, Team T>
WEFT_FN RowTable table_of(T& team, const Session& s, const ExchangeShape& shape, bool sends) {
  if constexpr (compact) {
    static_assert(2 * kMaxRanks <= kMostTallyWords);
    return sends ? RowTable{team.tally() + s.size(), s.rank(), 1} : RowTable{team.tally(), 0, s.size()};
  }
  const RowTable table =
      sends ? RowTable{team.tally() + shape.replicas, s.rank(), 1} : RowTable{team.tally(), 0, s.size()};
  const std::uint32_t used = sends ? shape.replicas : 0;
  const bool fits = used + shape.local * table.count <= T::kTallyWords;
  return shape.layout != RowLayout::rank_major && fits ? table : RowTable{};
}
// By all threads of the block; all() must follow. False when the call has failed.
template <bool compact = false, Team T>
WEFT_FN bool fill_table(T& team, const Session& s, const ExchangeView& exchange, const RowTable& table) {
  const ExchangeShape& shape = exchange.shape;
  const std::uint32_t lane = team.thread_rank() % T::kLanes;
  if constexpr (compact) {
    const auto put = [&](std::uint32_t source, std::uint32_t before) {
      if (source >= table.first) table.of(0, source) = before;
    };
    return team.thread_rank() >= T::kLanes || each_source(team, s, exchange, lane, table.first + table.count - 1, put);
  }
  bool good = true;
  const auto fill = [&](std::uint32_t first, std::uint32_t, std::uint32_t begin) {
    const std::uint32_t local = first + lane, last = table.first + table.count - 1;
    const bool one = local < shape.local;
    std::uint32_t sum = begin;
    const auto take = [&](std::uint32_t sender, std::uint32_t count) {
      if (one && sender >= table.first && sender < last) table.of(local, sender) = sum;
      sum += count;
    };
    good = good && each_count(team, s, exchange, one, local, last, take, [] {});
    if (one) table.of(local, last) = sum;
  };
  if (shape.layout == RowLayout::expert_contiguous) {
    std::uint32_t end = 0;
    return (team.thread_rank() >= T::kLanes || each_beginning(team, s, exchange, lane, end, fill)) && good;
  }
  for (std::uint32_t first = team.thread_rank() - lane; first < shape.local; first += team.size()) fill(first, 0, 0);
  return good;
}

// As place(), with a table if there is one.
template <bool compact = false, Team T>
WEFT_FN bool place_by_table(T& team, const Session& s, const ExchangeView& exchange, const RowTable& table,
                            std::uint32_t lane, std::uint32_t sender, std::uint32_t token, Entries<T>& entries) {
  if constexpr (compact) {
    std::uint32_t begin = table.exists() ? table.of(0, sender) : 0;
    const auto put = [&](std::uint32_t source, std::uint32_t before) { begin = source == sender ? before : begin; };
    if (!table.exists() && !each_source(team, s, exchange, lane, sender, put)) return false;
    if (!table.exists()) begin = team.from_lane(begin, sender % T::kLanes);
    place_compact(team, exchange.shape, lane, begin, entries);
    return true;
  }
  if (!table.exists()) return place(team, s, exchange, lane, sender, token, entries, [] {});
  const ExchangeShape& shape = exchange.shape;
  std::uint32_t kept = 0;
  entries.row.each(lane, shape.top_k, [&](std::uint32_t k, std::uint32_t& row, std::uint32_t j) {
    const std::uint32_t local = entries.local.own[j];
    if (local == kNone) return;
    row += table.of(local, sender);
    kept |= row < shape.capacity ? 1u << k : 0;
    if (shape.layout == RowLayout::expert_masked) row += local * shape.capacity;
  });
  entries.kept = team.or_of(kept);
  return true;
}

}  // namespace weft::detail
