// The way of rows that is faster in an exchange of experts, by tokens and blocks: slots or the ring.
#pragma once

#include <cstdint>

#include "weft/moe_exchange.hpp"

namespace weft::detail {

// A dispatch with its combine is faster by slots up to so many tokens of a rank for each block that moves data. It was
// measured for up to so many blocks, the one for control included (docs/notes/0060-few-blocks-take-the-ring.md).
// From more blocks, slots are taken as faster for all tokens that may have them.
inline constexpr std::uint32_t kSlotTokensOfBlock = 6;
inline constexpr int kMostFewBlocks = 65;
inline constexpr std::uint32_t kAllTokens = UINT32_MAX;

// `blocks`: as MoeExchangeArgs::blocks.
constexpr std::uint32_t tokens_by_slots(int blocks) {
  if (blocks < 2 || blocks > kMostFewBlocks) return kAllTokens;
  return kSlotTokensOfBlock * static_cast<std::uint32_t>(blocks - 1);
}
constexpr bool ring_is_faster(std::uint32_t tokens, int blocks) {
  return tokens > tokens_by_slots(blocks);
}

// The exchange with RowPath::automatic replaced where MoeExchangeArgs::blocks asks for the ring, with the slots beside
// it, or MoeExchangeArgs::repeatable, which has none. It follows from the arguments alone, which ranks compare: so all
// of them choose alike.
MoeExchangeArgs with_row_path(const MoeExchangeArgs& args);

}  // namespace weft::detail
