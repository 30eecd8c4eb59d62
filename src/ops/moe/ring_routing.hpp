// The routing of a token on its way through a ring: behind its row, one word for each of its entries. A word holds the
// entry's place (RoutingRecord::place) and its weight.
#pragma once

#include <cstdint>

#include "ops/moe/moe_places.hpp"

namespace weft::detail {

WEFT_FN std::uint64_t entry_word(std::uint32_t place, std::uint32_t weight) {
  return static_cast<std::uint64_t>(weight) << 32 | place;
}

// Adds the entries `from` … `until` − 1 of this rank to the tally of those that each replica serves. By all threads of
// a block; sync() must follow.
template <Team T>
WEFT_FN void tally_entries(T& team, const TopK& topk, std::uint32_t from, std::uint32_t until) {
  constexpr std::uint32_t kIds = 8;  // that a thread loads at once
  for (std::uint32_t first = from + team.thread_rank(); first < until; first += kIds * team.size()) {
    TopK::Id id[kIds];
    WEFT_UNROLL
    for (std::uint32_t j = 0; j < kIds; ++j) id[j] = topk.id(first + j * team.size(), until);
    WEFT_UNROLL
    for (std::uint32_t j = 0; j < kIds; ++j) {
      const std::uint32_t replica = topk.replica(id[j], first + j * team.size());
      if (replica != kNone) team.add(team.tally() + replica);
    }
  }
}

template <Team T>
WEFT_FN void clear_tally(T& team, std::uint32_t replicas) {
  for (std::uint32_t i = team.thread_rank(); i < replicas; i += team.size()) team.tally()[i] = 0;
  team.sync();
}

// Sends how many entries each replica gets from here. By the control block.
template <Team T>
WEFT_FN void send_all_counts(T& team, const Session& s, const DispatchWork& work) {
  const std::uint32_t replicas = work.exchange.shape.replicas;
  clear_tally(team, replicas);
  tally_entries(team, TopK::of(work, s.rank()), 0, work.tokens * work.exchange.shape.top_k);
  team.sync();
  for (std::uint32_t replica = team.thread_rank(); replica < replicas; replica += team.size()) {
    const ExpertHome home = home_of(work.exchange, replica);
    team.store(DispatchArea::of(s, work.exchange, home.rank, s.rank()).counts() + home.local,
               FlaggedWord::encode(team.tally()[replica], s.epoch));
  }
}

// The entries of a token that is about to be sent, dealt to the lanes of its warp.
template <Team T>
struct SentEntries {
  LaneArray<T, kMaxTopK> rank, place, weight;  // rank: kNone for an entry of no expert
  RankSet to;                                  // ranks that get the row
};

// By a warp. The tally has all entries of the tokens before `first_token`; entries of its block's tokens from there on
// are compared one by one.
template <Team T>
WEFT_FN SentEntries<T> find_entries(T& team, const Session& s, const DispatchWork& work, std::uint32_t lane,
                                    std::uint32_t first_token, std::uint32_t token) {
  constexpr std::uint32_t kIds = 8;
  const ExchangeShape& shape = work.exchange.shape;
  const TopK topk = TopK::of(work, s.rank());
  const std::uint32_t first = token * shape.top_k, end = first + shape.top_k;
  SentEntries<T> entries{};
  LaneArray<T, kMaxTopK> replica{}, ordinal{};
  replica.each(lane, shape.top_k, [&](std::uint32_t k, std::uint32_t& own, std::uint32_t j) {
    own = topk.replica(topk.id(first + k, end), first + k);
    if (shape.weighted) entries.weight.own[j] = bits_of<std::uint32_t>(work.weights[first + k]);
    ordinal.own[j] = own != kNone ? team.tally()[own] : 0;
  });
  for (std::uint32_t m = first_token * shape.top_k; m < end; m += kIds) {
    TopK::Id id[kIds];
    WEFT_UNROLL
    for (std::uint32_t j = 0; j < kIds; ++j) id[j] = topk.id(m + j, end);
    WEFT_UNROLL
    for (std::uint32_t i = 0; i < kIds; ++i) {
      const std::uint32_t other = topk.replica(id[i], m + i);
      replica.each(lane, shape.top_k, [&](std::uint32_t k, std::uint32_t own, std::uint32_t j) {
        ordinal.own[j] += m + i < first + k && other == own ? 1 : 0;
      });
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
  WEFT_UNROLL
  for (std::uint32_t first_rank = 0; first_rank < kMaxRanks; first_rank += 32) {
    if (first_rank < s.size()) entries.to.put(first_rank, team.or_of(own.word(first_rank)));
  }
  return entries;
}

// Stores the token's routing for `rank` behind its row there.
template <Team T>
WEFT_FN void send_entries(T& team, const ExchangeShape& shape, std::uint32_t lane, std::uint32_t rank, Pack* row,
                          SentEntries<T>& entries) {
  auto* const words = reinterpret_cast<std::uint64_t*>(row + shape.row_packs);
  entries.rank.each(lane, shape.top_k, [&](std::uint32_t k, std::uint32_t home, std::uint32_t j) {
    team.store(words + k, entry_word(home == rank ? entries.place.own[j] : kNone, entries.weight.own[j]));
  });
}

// Reads the routing behind a row that has arrived.
template <Team T>
WEFT_FN Entries<T> read_entries(T& team, const ExchangeShape& shape, std::uint32_t lane, const Pack* row) {
  const auto* const words = reinterpret_cast<const std::uint64_t*>(row + shape.row_packs);
  Entries<T> entries{};
  std::uint32_t here = 0;
  entries.local.each(lane, shape.top_k, [&](std::uint32_t k, std::uint32_t& local, std::uint32_t j) {
    const std::uint64_t word = team.load(words + k);
    const auto place = static_cast<std::uint32_t>(word);
    local = place == kNone ? kNone : RoutingRecord::local(place);
    entries.row.own[j] = RoutingRecord::ordinal(place);
    entries.weight.own[j] = static_cast<std::uint32_t>(word >> 32);
    here |= place == kNone ? 0 : 1u << k;
  });
  entries.here = team.or_of(here);
  return entries;
}

}  // namespace weft::detail
