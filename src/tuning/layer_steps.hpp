// Steps of a tuning table for whole layers of experts (weft/moe_layer.hpp).
#pragma once

#include <cstdint>
#include <vector>

#include "weft/layer_schedule.hpp"
#include "weft/moe_exchange.hpp"

namespace weft::detail {

// The layers that a table serves, besides its processor and number of ranks.
struct LayerSize {
  std::uint32_t hidden = 0, intermediate = 0;
  std::uint32_t local_experts = 0;  // of the rank that has most
  std::uint32_t top_k = 0;
  RowPath path = RowPath::automatic;  // the way of a call's rows; automatic: either, where no table names the call's

  bool operator==(const LayerSize&) const = default;
};

// Processors of each part, as in MoeLayerCall. 0: chosen by size.
struct LayerSms {
  int send = 0, recv = 0, combine_send = 0, combine_recv = 0, up = 0, down = 0;

  bool operator==(const LayerSms&) const = default;
};

// Serves calls whose ranks have up to `up_to` tokens, if no earlier step does. The last step serves all that are
// larger.
struct LayerStep {
  std::uint32_t up_to = UINT32_MAX;
  LayerSchedule schedule = LayerSchedule::plain;
  std::uint32_t rounds = 1;
  std::vector<std::uint32_t> experts = {};  // of each round; empty: as even as possible
  LayerSms sms = {};
  RowPath path = RowPath::automatic;  // in a layer's list of both ways: that of its calls; in tables automatic

  bool operator==(const LayerStep&) const = default;
};

inline constexpr std::uint32_t kMostTunedRounds = 16;  // as ops/moe has

}  // namespace weft::detail
