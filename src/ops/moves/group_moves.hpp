// The queries of plan_move() for the calls of a group.
#pragma once

#include "comm/state.hpp"
#include "ops/moves/move_plan.hpp"

namespace weft::detail {

// Without a call's rows and launch. `type`: of the sums; a copy has none.
MoveQuery move_query_for(const GroupState& group, TunedOperation operation, DataType type = DataType::u8);

}  // namespace weft::detail
