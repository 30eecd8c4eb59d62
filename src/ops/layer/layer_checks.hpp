// Checks of a layer's call.
#pragma once

#include "ops/layer/layer_state.hpp"
#include "ops/moe/exchange.hpp"

namespace weft::detail {

// All arguments of a call but those that its dispatch checks: nothing has been launched yet. Throws
// Errc::invalid_argument with the argument's name.
void check_layer_call(const LayerState& layer, const MoeLayerCall& call);
// The arguments that the experts alone use. Gives the call's rounds.
Rounds check_experts(const LayerState& layer, const MoeLayerCall& call);

}  // namespace weft::detail
