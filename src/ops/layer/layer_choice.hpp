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

// The call as its step says; unchanged if it has another schedule or rounds of its own. Numbers of processors are the
// caller's, else the step's, as far as the exchange's launches and the GPU go. Plain if there is no step, or if the
// exchange cannot divide such a call. The layer must stay until the call has been made.
MoeLayerCall resolved(const LayerState& layer, const MoeLayerCall& call);

}  // namespace weft::detail
