// Dispatches by a mask of ranks (DispatchArgs::rank_mask), the same for CPU ranks and GPU ranks.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "support/moe_batches.hpp"

namespace weft::test {

// Tokens that go to all ranks, to none and to any, differently in each call.
inline bool goes_to(std::uint32_t seed, std::uint32_t rank, std::uint32_t token, std::uint32_t to) {
  if (token % 5 == 0) return true;
  if (token % 5 == 1) return false;
  return ((rank * 31 + token * 7 + to * 3 + seed) * 0x9e3779b1u >> 28) % 2 == 0;
}

// An exchange of ranks, and ids that say what the mask says: entry k of a token is rank k, or none.
inline MoeCase masked_case(const MoeExchangeArgs& exchange, std::uint32_t ranks, std::uint32_t seed) {
  MoeCase c{.args = exchange, .tokens = {exchange.tokens, 0, exchange.tokens - 1}};
  c.args.experts = c.args.top_k = ranks;
  c.args.weighted = false;
  auto entry = std::make_shared<std::vector<std::uint32_t>>(std::size_t{ranks} * exchange.tokens);
  c.translate = [=](std::int64_t, std::uint32_t rank, std::uint32_t token) -> std::int64_t {
    const std::uint32_t to = (*entry)[rank * exchange.tokens + token]++ % ranks;
    return goes_to(seed, rank, token, to) ? std::int64_t{to} : -1;
  };
  return c;
}

// The mask of a rank's tokens. Any byte but 0 sends the row.
inline std::vector<std::uint8_t> mask_of(const PreparedMoe& p, std::uint32_t rank) {
  std::vector<std::uint8_t> mask;
  for (const std::int64_t id : p.tokens[rank].ids) {
    mask.push_back(id >= 0 ? static_cast<std::uint8_t>(1u << mask.size() % 8) : std::uint8_t{0});
  }
  return mask;
}

// Each layout by slots, and by a ring of fewer places than tokens.
inline std::vector<Batch> masked_batches(std::uint32_t ranks) {
  MoeExchangeArgs args{.tokens = 40, .hidden = 128};
  std::vector<Batch> batches;
  for (const RowCast cast : {RowCast::none, RowCast::fp8}) {
    args.cast = cast;
    batches.push_back({masked_case(args, ranks, 1), masked_case(args, ranks, 2)});
  }
  batches = in_every_layout(batches, ranks);
  const std::vector<Batch> by_ring = on_ring(batches);
  batches.insert(batches.end(), by_ring.begin(), by_ring.end());
  return batches;
}

}  // namespace weft::test
