// Checks of the tensors of an exchange's calls. All throw Errc::invalid_argument with the argument's name.
#pragma once

#include "ops/moe/exchange_state.hpp"
#include "weft/moe.hpp"

namespace weft::detail {

// `name`: of the argument that gives a launch its number of blocks. `ring`: rows of the call flow through a ring.
void check_exchange_blocks(const GroupState& group, const char* name, int blocks, bool ring);

// Outputs that the layout needs must be there. Other outputs are optional if the layout has them. `again`: the dispatch
// is made again, and writes rows alone.
void check_outputs(const GroupState& group, const ExchangeState& exchange, const DispatchArgs& args, bool again);
void check_inputs(const GroupState& group, const ExchangeState& exchange, const DispatchArgs& args);
// Checks a dispatch that is made again. `kept`: the call is made later, by replays.
void check_again(const ExchangeState& exchange, const DispatchArgs& args, bool kept);
// No rows, scales and payloads of the output lie in another tensor: in a joined call, whose kernel reads and writes at
// once, and in a wait, which has no tokens of its own.
void check_rows_apart(const ExchangeState& exchange, const DispatchArgs& args);
// The same of a joined combine, whose output may be its residual.
void check_rows_apart(const ExchangeState& exchange, const CombineArgs& args);

// Tensors that a combine's send uses, or its wait, or both.
void check_combine_weights(const ExchangeState& exchange, const CombineArgs& args);
void check_combine_input(const ExchangeState& exchange, const CombineArgs& args);
void check_combine_output(const ExchangeState& exchange, const CombineArgs& args);

}  // namespace weft::detail
