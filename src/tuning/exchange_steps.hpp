// Steps of a tuning table for exchanges of experts (weft/moe.hpp): a dispatch with its combine.
#pragma once

#include <cstdint>
#include <string_view>

#include "weft/moe_exchange.hpp"

namespace weft::detail {

// The exchanges that a table serves, besides its processor and number of ranks.
struct ExchangeSize {
  std::uint32_t hidden = 0;
  std::uint32_t local_experts = 0;  // of the rank that has most
  std::uint32_t top_k = 0;
  RowLayout layout = RowLayout::expert_masked;
  RowCast cast = RowCast::none;

  bool operator==(const ExchangeSize&) const = default;
};

// Its words in files.
constexpr std::string_view cast_word(RowCast cast) {
  constexpr std::string_view words[] = {"none", "fp8", "fp8-ue8m0", "fp8-pow2"};
  return words[static_cast<int>(cast)];
}

// As in Launch. 0: chosen by size.
struct StepGrid {
  int blocks = 0, threads = 0;

  bool operator==(const StepGrid&) const = default;
};

// Serves calls whose ranks have up to `up_to` tokens, if no earlier step does. The last step serves all that are
// larger. Slots come first: a step by the ring has none by slots behind it.
struct ExchangeStep {
  std::uint32_t up_to = UINT32_MAX;
  RowPath path = RowPath::slots;  // or ring
  StepGrid dispatch = {}, combine = {};

  bool operator==(const ExchangeStep&) const = default;
};

}  // namespace weft::detail
