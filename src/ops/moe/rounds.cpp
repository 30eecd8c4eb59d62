#include "ops/moe/rounds.hpp"

#include "base/fingerprint.hpp"
#include "comm/arguments.hpp"
#include "ops/moe/exchange_state.hpp"

namespace weft::detail {

Rounds plan_rounds(const ExchangeShape& shape, bool ring, std::uint32_t most_tokens, const ExpertRounds& wanted) {
  const std::uint32_t count = wanted.count;
  require(count >= 1 && count <= kMostRounds, "rounds.count: {} is not between 1 and {}", count, kMostRounds);
  require(count == 1 || shape.layout != RowLayout::rank_compact,
          "rounds.count: {} is not 1, and rank-compact rows come in one round", count);
  const std::uint32_t most = most_tokens != 0 ? most_tokens : shape.tokens;
  require(count == 1 || !ring || most <= shape.ring_rows,
          "rounds.count: {} rounds serve most_tokens up to the {} of MoeExchangeArgs::ring_rows, and not {}", count,
          shape.ring_rows, most);
  require(count == 1 || !shape.weighted || shape.carries_weights,
          "rounds.count: {} rounds ask for weights at dispatch, and this exchange takes them at combine", count);
  std::uint64_t experts = 0;
  for (std::uint32_t round = 0; wanted.experts != nullptr && round < count; ++round) experts += wanted.experts[round];
  require(wanted.experts == nullptr || experts == shape.most_local,
          "rounds.experts: all rounds together have {} experts, and not the {} of the rank that has most", experts,
          shape.most_local);
  return divide(shape.most_local, wanted);
}

Rounds plan_dispatch_rounds(const ExchangeState& exchange, std::uint32_t most_tokens, const ExpertRounds& wanted) {
  require(wanted.count == 1 || !exchange.args().repeatable, "rounds.count: {} is not 1, and the exchange is repeatable",
          wanted.count);
  return plan_rounds(exchange.shape(), exchange.takes_ring(most_tokens), most_tokens, wanted);
}

std::uint64_t division_of(const Rounds& rounds) {
  std::uint64_t division = 0;
  for (std::uint32_t round = 0; rounds.count != 1 && round < rounds.count; ++round) {
    division = fingerprint(NameHash("rounds"), division, rounds.end[round]);
  }
  return division;
}

}  // namespace weft::detail
