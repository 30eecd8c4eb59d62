// Weights that are given to combine: each rank sends its tokens' weights to all ranks before it waits for anything. A
// rank that adds up its experts' rows of a token waits for the weights of those entries. It knows their numbers from
// dispatch (ExpertEntry).
//
// They go to all ranks, not only to those that answer: so no table has to be read first. There is one bank of them. A
// rank that reads a token's weights sends its row behind that, and the owner ends no call without this row.
//
// A word carries its flag, and is not put back to rest. Every call writes the words of one token that its rank does not
// have, in turn, as dispatch writes records. So no word is older than a round of the tokens, and none can be taken for
// one of a later round of the epochs.
#pragma once

#include <cstdint>

#include "ops/moe/moe_routing.hpp"

namespace weft::detail {

// The words in the window of `owner` for a token of `sender`.
WEFT_FN std::uint64_t* late_weights(const Session& s, const CombineWork& work, std::uint32_t owner,
                                    std::uint32_t sender, std::uint32_t token) {
  const ExchangeShape& shape = work.exchange.shape;
  const std::uint64_t index = std::uint64_t{sender} * work.late.places + token;
  return reinterpret_cast<std::uint64_t*>(region_of(*s.call, owner) + work.late.arrived) + index * shape.top_k;
}

// The first weight that a thread of a data block sends, loaded before the call has begun.
template <Team T>
WEFT_FN std::uint32_t first_late_weight(T& team, const CombineWork& work) {
  if (team.block_rank() == 0 || !work.phases.has(0)) return 0;
  const std::uint32_t i = (team.block_rank() - 1) * team.size() + team.thread_rank();
  return i < work.late.tokens * work.exchange.shape.top_k ? bits_of<std::uint32_t>(work.late.given[i]) : 0;
}

// By all threads of the data blocks.
template <Team T>
WEFT_FN void send_late_weights(T& team, const Session& s, const CombineWork& work, std::uint32_t weight) {
  const std::uint32_t all = work.late.tokens * work.exchange.shape.top_k, step = (team.blocks() - 1) * team.size();
  for (std::uint32_t i = (team.block_rank() - 1) * team.size() + team.thread_rank(); i < all;) {
    const std::uint64_t word = FlaggedWord::encode(weight, s.epoch);
    for (std::uint32_t turn = 0; turn < s.size(); ++turn) {
      team.store(late_weights(s, work, rank_after(s.rank(), turn, s.size()), s.rank(), 0) + i, word);
    }
    i += step;
    if (i < all) weight = bits_of<std::uint32_t>(work.late.given[i]);
  }
}

// Writes the words of the token whose turn it is, if this rank does not have it. By the control block.
template <Team T>
WEFT_FN void renew_late_weights(T& team, const Session& s, const CombineWork& work) {
  const ExchangeShape& shape = work.exchange.shape;
  const std::uint32_t token = s.epoch % work.late.places;
  if (token < work.late.tokens) return;
  for (std::uint32_t i = team.thread_rank(); i < s.size() * shape.top_k; i += team.size()) {
    team.store(late_weights(s, work, i / shape.top_k, s.rank(), token) + i % shape.top_k,
               FlaggedWord::encode(0, s.epoch));
  }
}

// By all lanes of a warp: turns the numbers of a token's entries, of which the lanes have `count`, into their weights.
// Weights of this rank's own tokens are where the caller has given them, if this launch was given any: nothing is
// waited for. False when the call has failed.
template <Team T>
WEFT_FN bool await_late_weights(T& team, const Session& s, const CombineWork& work, std::uint32_t lane,
                                std::uint32_t sender, std::uint32_t token, std::uint32_t count,
                                LaneArray<T, kMaxTopK>& weight) {
  const std::uint64_t* const words = late_weights(s, work, s.rank(), sender, token);
  LaneArray<T, kMaxTopK> got{};
  if (sender == s.rank() && work.phases.has(0)) {
    const float* const given = work.late.given + std::uint64_t{token} * work.exchange.shape.top_k;
    weight.each(lane, count, [&](std::uint32_t, std::uint32_t& entry, std::uint32_t j) {
      got.own[j] = bits_of<std::uint32_t>(given[entry]);
    });
    weight = got;
    return true;
  }
  const auto arrived = [&] {
    bool all = true;
    weight.each(lane, count, [&](std::uint32_t, std::uint32_t& entry, std::uint32_t j) {
      const std::uint64_t word = team.load(words + entry);
      all &= FlaggedWord::arrived(word, s.epoch);
      got.own[j] = FlaggedWord::decode(word);
    });
    return team.all_lanes(all);
  };
  if (!wait(team, s, {.phase = 1, .warp = true}, arrived, [&] { return sender; })) return false;
  weight = got;
  return true;
}

}  // namespace weft::detail
