#include "ops/moves/group_moves.hpp"

#include "wire/payload.hpp"

namespace weft::detail {

// Lines: three packs of payload travel in four of the wire on GPUs, one in two on CPU ranks. Sums travel as packs.
MoveQuery move_query_for(const GroupState& group, TunedOperation operation, DataType type) {
  const Device device = group.communicator().fabric().device();
  const auto size = static_cast<std::uint32_t>(group.size());
  const bool cpu = device == Device::cpu, copy = operation == TunedOperation::all_gather;
  return {.device = device,
          .size = size,
          .layout = group.layout(),
          .own_bytes = 0,
          .whole_bytes = 0,
          .unit_bytes = copy && !cpu ? 3 * sizeof(Pack) : sizeof(Pack),
          .wire_packs = !copy ? sizeof(Pack) / payload_bytes(type)
                        : cpu ? 2
                              : 4,
          .streams = copy ? size : 1,
          .max_blocks = group.communicator().max_blocks(),
          .table = group.tuning(operation).table};
}

}  // namespace weft::detail
