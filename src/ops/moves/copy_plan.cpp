#include "ops/moves/copy_plan.hpp"

#include "ops/moves/group_moves.hpp"

namespace weft::detail {

MovePlan plan_copy(const GroupState& group, const CopyPlanArgs& args) {
  MoveQuery query = move_query_for(group, TunedOperation::all_gather);
  if (args.symmetric) query.table = nullptr;
  query.own_bytes = args.own;
  query.whole_bytes = args.whole;
  query.sent_bytes = args.sent;
  query.symmetric = args.symmetric;
  query.launch = args.launch;
  query.max_blocks = group.communicator().max_blocks(args.launch);
  return plan_move(query);
}

}  // namespace weft::detail
