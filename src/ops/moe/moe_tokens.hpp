// The number of tokens of each rank: a word from each, which dispatch's receivers await.
#pragma once

#include <cstdint>

#include "ops/moe/moe_places.hpp"

namespace weft::detail {

// The number of tokens of each rank, as far as the numbers have come; dealt to the lanes of a warp.
template <Team T>
struct SenderTokens {
  static constexpr std::uint32_t kUnknown = kNone;  // more than any number
  LaneArray<T, kMaxRanks> count;

  WEFT_FN SenderTokens() {
    WEFT_UNROLL
    for (std::uint32_t& known : count.own) known = kUnknown;
  }

  struct Words {
    std::uint64_t own[LaneArray<T, kMaxRanks>::kOwn];
  };
  // Asks for the unknown numbers; nothing here waits for them.
  WEFT_FN Words load(T& team, const Session& s, const ExchangeView& exchange, std::uint32_t lane) {
    Words words;
    count.each(lane, s.size(), [&](std::uint32_t rank, std::uint32_t known, std::uint32_t j) {
      words.own[j] = FlaggedWord::encode(known, s.epoch);
      if (known == kUnknown) words.own[j] = team.load(DispatchArea::of(s, exchange, s.rank(), rank).tokens());
    });
    return words;
  }
  WEFT_FN void note(const Session& s, std::uint32_t lane, const Words& words) {
    count.each(lane, s.size(), [&](std::uint32_t, std::uint32_t& known, std::uint32_t j) {
      if (FlaggedWord::arrived(words.own[j], s.epoch)) known = FlaggedWord::decode(words.own[j]);
    });
  }
  // An unknown rank of this lane, or kNoPeer.
  WEFT_FN std::uint32_t late(const Session& s, std::uint32_t lane) {
    std::uint32_t who = kNoPeer;
    count.each(lane, s.size(),
               [&](std::uint32_t rank, std::uint32_t known, std::uint32_t) { who = known == kUnknown ? rank : who; });
    return who;
  }
  // By all lanes, when all numbers are known: whether a rank has more tokens.
  WEFT_FN bool any_above(T& team, const Session& s, std::uint32_t lane, std::uint32_t tokens) {
    bool above = false;
    count.each(lane, s.size(), [&](std::uint32_t, std::uint32_t known, std::uint32_t) { above |= known > tokens; });
    return !team.all_lanes(!above);
  }
  // The most of a rank. By all lanes, when all numbers are known.
  WEFT_FN std::uint32_t most(T& team, const Session& s) {
    std::uint32_t most = 0;
    for (std::uint32_t rank = 0; rank < s.size(); ++rank) {
      const std::uint32_t known = count.get(team, rank);
      if (known > most) most = known;
    }
    return most;
  }
  // By all lanes.
  WEFT_FN bool know_all(T& team, const Session& s, const ExchangeView& exchange, std::uint32_t lane) {
    const auto all = [&] {
      note(s, lane, load(team, s, exchange, lane));
      return team.all_lanes(late(s, lane) == kNoPeer);
    };
    return wait(team, s, {.phase = 1, .warp = true}, all, [&] { return late(s, lane); });
  }
};

// Tells combine and the caller how many tokens each rank has. By the first warp of the control block. False when the
// call has failed.
template <Team T>
WEFT_FN bool tell_tokens(T& team, const Session& s, const DispatchWork& work) {
  SenderTokens<T> tokens;
  if (!tokens.know_all(team, s, work.exchange, team.thread_rank())) return false;
  RoutingHeader* const header = work.exchange.tables.header;
  std::uint32_t most = 0;
  for (std::uint32_t rank = 0; rank < s.size(); ++rank) {
    const std::uint32_t count = tokens.count.get(team, rank);
    if (count > most) most = count;
    if (team.thread_rank() != 0) continue;
    header->tokens[rank] = count;
    tell_host(team, s, work, work.exchange.shape.local + rank, count);
    if (work.source_tokens != nullptr) work.source_tokens[rank] = static_cast<std::int32_t>(count);
  }
  if (team.thread_rank() == 0) header->most_tokens = most;
  return true;
}

}  // namespace weft::detail
