// Entries counted in a block's tally, once for many records: each replica's counts, and ordinals of entries.
#pragma once

#include <cstdint>

#include "ops/moe/moe_routing.hpp"

namespace weft::detail {

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

// Sends the records of this block's tokens, and of no others. All threads count the entries before them. Then the last
// warp gives its entries their ordinals, one warp's width after the other. By all threads of a block; nobody else uses
// the tally until the launch ends.
template <Team T>
WEFT_FN void send_records(T& team, const Session& s, const DispatchWork& work) {
  const ExchangeShape& shape = work.exchange.shape;
  const std::uint32_t blocks = team.blocks() - 1, each = (work.tokens + blocks - 1) / blocks * shape.top_k;
  const std::uint32_t all = work.tokens * shape.top_k, begin = (team.block_rank() - 1) * each;
  const std::uint32_t end = begin + each < all ? begin + each : all;
  if (begin >= all) return;
  const TopK topk = TopK::of(work, s.rank());
  clear_tally(team, shape.replicas);
  tally_entries(team, topk, 0, begin);
  team.sync();
  if (team.thread_rank() / T::kLanes + 1 != team.size() / T::kLanes) return;
  const std::uint32_t lane = team.thread_rank() % T::kLanes;
  for (std::uint32_t first = begin; first < end; first += T::kLanes) {
    const std::uint32_t i = first + lane, replica = topk.replica(topk.id(i, end), i);
    std::uint32_t ordinal = 0;
    for (std::uint32_t lower = 0; lower < T::kLanes; ++lower) {
      const std::uint32_t other = team.from_lane(replica, lower);
      ordinal += lower < lane && other == replica ? 1 : 0;
    }
    if (replica != kNone) ordinal += team.tally()[replica];
    if (i < end) {
      const std::uint32_t k = i % shape.top_k;
      const SentRecord record = SentRecord::of(work, i / shape.top_k, k, replica, ordinal,
                                               shape.carries_weights ? bits_of<std::uint32_t>(work.weights[i]) : k);
      for (std::uint32_t rank = 0; rank < s.size(); ++rank) record.send(team, s, work, rank);
    }
    team.sync_lanes();  // all have read the tally
    if (replica != kNone) team.add(team.tally() + replica);
    team.sync_lanes();  // it counts this round's entries, too
  }
}

}  // namespace weft::detail
