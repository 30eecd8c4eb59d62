// The rounds of a call, from the caller's division of the experts.
#pragma once

#include <cstdint>

#include "ops/moe/exchange.hpp"
#include "weft/moe.hpp"

namespace weft::detail {

class ExchangeState;

// For a division that has been checked; `most_local`: experts of the rank that has most.
constexpr Rounds divide(std::uint32_t most_local, const ExpertRounds& wanted) {
  Rounds rounds{.count = wanted.count};
  std::uint32_t end = 0;
  for (std::uint32_t round = 0; round < wanted.count; ++round) {
    const std::uint32_t even = most_local / wanted.count + (round < most_local % wanted.count ? 1 : 0);
    end += wanted.experts != nullptr ? wanted.experts[round] : even;
    rounds.end[round] = static_cast<std::uint16_t>(end);
  }
  return rounds;
}

// Throws Errc::invalid_argument for a division that cannot be. `ring`: rows of the call flow through a ring. There each
// row of a call in rounds has a place of its own. `most_tokens`: as in DispatchArgs.
Rounds plan_rounds(const ExchangeShape& shape, bool ring, std::uint32_t most_tokens, const ExpertRounds& wanted);
// Likewise of a dispatch: that of a repeatable exchange has one round.
Rounds plan_dispatch_rounds(const ExchangeState& exchange, std::uint32_t most_tokens, const ExpertRounds& wanted);

// Part of a call's fingerprint. 0: one round.
std::uint64_t division_of(const Rounds& rounds);

}  // namespace weft::detail
