// The tokens of a program's dispatches: which experts they name, and their weights.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

#include "ops/moe/sim_exchange.hpp"
#include "sim/all_reduce.hpp"

namespace weft::sim {

inline const ExchangePlan& plan_of(const World& world) {
  return static_cast<const ExchangePlan&>(world.exchange());
}

inline const std::vector<std::int64_t>& ids_of(const CallSetup& dispatch, unsigned rank) {
  return dispatch.ids[std::min<std::size_t>(rank, dispatch.ids.size() - 1)];
}
inline float weight_of(unsigned call, unsigned rank, std::uint64_t i) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(element_bits(Payload::plain, DataType::f32, call, rank, i)));
}

// The rounds of a call of ranks that have `most_local` experts at most.
detail::Rounds rounds_of(const CallSetup& spec, std::uint32_t most_local);

}  // namespace weft::sim
