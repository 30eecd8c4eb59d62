// The plan of a copy: plan_move() with what a copy's wire is like.
#pragma once

#include <cstdint>

#include "comm/arguments.hpp"
#include "comm/state.hpp"
#include "ops/moves/copy_work.hpp"
#include "ops/moves/move_plan.hpp"

namespace weft::detail {

// `own`, `whole`: bytes that this rank has room for, for its own rows and for all ranks' rows. `sent`:
// MoveQuery::sent_bytes.
struct CopyPlanArgs {
  std::uint64_t own, whole, sent;
  bool symmetric;
  Launch launch;
};
MovePlan plan_copy(const GroupState& group, const CopyPlanArgs& args);

// A tensor of a copy: rows as long as the input's.
inline CopyTensor copy_tensor(const Extent& input, const Extent& output) {
  return {.input = input.data,
          .output = const_cast<void*>(output.data),
          .row_bytes = input.row_bytes,
          .input_stride = input.stride,
          .output_stride = output.stride};
}

}  // namespace weft::detail
