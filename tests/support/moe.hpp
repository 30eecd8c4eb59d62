// Tokens that ranks send to experts, and their results by the oracle.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "oracle/moe.hpp"
#include "support/reference.hpp"
#include "weft/moe.hpp"

namespace weft::test {

using oracle::Arrival;
using oracle::ExpertRows;
using oracle::Routing;

// One rank's tokens.
struct Tokens {
  std::uint32_t count = 0;
  Bytes rows, scales;               // [count, bytes of a row]
  std::vector<Bytes> payloads;      // the same, of each of MoeExchangeArgs::payload_bytes
  std::vector<std::int64_t> ids;    // [count, top_k]
  std::vector<float> weights;       // [count, top_k]
  std::vector<std::int32_t> given;  // ids before their translation (MoeCase::translate)
};

inline Routing route(const std::vector<Tokens>& ranks, const MoeExchangeArgs& args) {
  Routing routing;
  for (std::uint32_t rank = 0; rank < ranks.size(); ++rank)
    oracle::route(args, rank, ranks[rank].ids, ranks[rank].weights, routing);
  return routing;
}

// A row as it arrives: its bytes, then its scales.
inline Bytes cast_row(const MoeExchangeArgs& args, const Tokens& tokens, std::uint32_t token) {
  const oracle::MoeRules rules(args);
  const auto part = [&](const Bytes& of, std::size_t bytes) { return std::span(of).subspan(token * bytes, bytes); };
  return oracle::arriving_row(rules, part(tokens.rows, rules.row_bytes), part(tokens.scales, args.scale_bytes));
}

}  // namespace weft::test
