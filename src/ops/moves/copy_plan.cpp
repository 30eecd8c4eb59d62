#include "ops/moves/copy_plan.hpp"

namespace weft::detail {

// Lines: three packs of payload travel in four of the wire on GPUs, one in two on CPU ranks.
MovePlan plan_copy(const GroupState& group, const CopyPlanArgs& args) {
  const Device device = group.communicator().fabric().device();
  const auto size = static_cast<std::uint32_t>(group.size());
  const bool cpu = device == Device::cpu;
  return plan_move({.device = device,
                    .size = size,
                    .layout = group.layout(),
                    .own_bytes = args.own,
                    .whole_bytes = args.whole,
                    .sent_bytes = args.sent,
                    .unit_bytes = cpu ? 16u : 48u,
                    .wire_packs = cpu ? 2u : 4u,
                    .streams = size,
                    .symmetric = args.symmetric,
                    .launch = args.launch,
                    .max_blocks = group.communicator().max_blocks()});
}

}  // namespace weft::detail
