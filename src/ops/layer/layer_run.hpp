// One call of a layer: its parts in the order of its schedule.
#pragma once

#include "ops/layer/layer_state.hpp"
#include "ops/moe/exchange.hpp"

namespace weft::detail {

// The call has been checked, and these are its rounds.
void run_layer(const LayerState& layer, const MoeLayerCall& call, const Rounds& rounds);
// Its experts alone, of the rows that lie in the workspace.
void run_experts(const LayerState& layer, const MoeLayerCall& call, const Rounds& rounds);

}  // namespace weft::detail
