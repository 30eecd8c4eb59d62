// The choice behind LayerSchedule::automatic: a step of the layer's tuning table, by the most tokens of a rank.
#pragma once

#include <vector>

#include "ops/moe/exchange_state.hpp"
#include "tuning/layer_steps.hpp"
#include "weft/moe_layer.hpp"

namespace weft::detail {

class LayerState;

// Steps of the table that all ranks have from rank 0; none if there is no table for such a layer.
std::vector<LayerStep> layer_steps_of(const ExchangeState& exchange, const MoeLayerArgs& args);

// The call as its step says. Numbers of processors that the caller gives stay, and those of the step are taken as far
// as this exchange's launches and the GPU go. Plain, if there is no step, or if the exchange cannot divide such a call.
// A call of another schedule, or with rounds of its own, comes back as it is. The layer must stay until the call has
// been made.
MoeLayerCall resolved(const LayerState& layer, const MoeLayerCall& call);

}  // namespace weft::detail
