// Checks of the tensors of an exchange's calls. All throw Errc::invalid_argument with the argument's name.
#pragma once

#include "ops/moe/exchange_state.hpp"
#include "weft/moe.hpp"

namespace weft::detail {

// Outputs that the layout needs must be there. Other outputs are optional if the layout has them.
void check_outputs(const GroupState& group, const ExchangeShape& shape, const DispatchArgs& args);
void check_inputs(const GroupState& group, const ExchangeShape& shape, const DispatchArgs& args);

// Tensors that a combine's send uses, or its wait, or both.
void check_combine_weights(const ExchangeState& exchange, const CombineArgs& args);
void check_combine_input(const ExchangeState& exchange, const CombineArgs& args);
void check_combine_output(const ExchangeState& exchange, const CombineArgs& args);

}  // namespace weft::detail
