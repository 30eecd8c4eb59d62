// From run-time values to the one template instance that serves them: dispatch and combine.
#pragma once

#include <utility>

#include "algorithms/moe_combine.hpp"
#include "algorithms/moe_dispatch.hpp"
#include "core/operation.hpp"
#include "weft/types.hpp"

namespace weft::detail {

template <ScaleOrder order, class Run>
void with_moe_cast(RowType type, Run&& run) {
  if (type == RowType::bf16) return run.template operator()<MoeDispatch<CastRow<DataType::bf16, order>>>();
  run.template operator()<MoeDispatch<CastRow<DataType::f16, order>>>();
}
template <class Run>
void with_moe_dispatch(RowType type, RowCast cast, ScaleOrder order, Run&& run) {
  if (cast == RowCast::none) return run.template operator()<MoeDispatch<ExactRow>>();
  if (order == ScaleOrder::rows) return with_moe_cast<ScaleOrder::rows>(type, run);
  with_moe_cast<ScaleOrder::columns>(type, run);
}

template <std::uint32_t ranks_at_once, class Run>
void with_moe_sum(DataType type, Run&& run) {
  if (type == DataType::bf16) return run.template operator()<MoeCombine<DataType::bf16, ranks_at_once>>();
  run.template operator()<MoeCombine<DataType::f16, ranks_at_once>>();
}
template <class Run>
void with_moe_combine(DataType type, std::uint32_t ranks, Run&& run) {
  if (ranks <= 4) return with_moe_sum<4>(type, run);
  with_moe_sum<8>(type, run);
}

// Calls `run.template operator()<Algorithm class>(work)` for the instance that serves the operation.
template <class Run>
struct ServeMoe {
  Run run;

  void operator()(const DispatchOperation& op) const {
    const ExchangeShape& shape = op.work.exchange.shape;
    with_moe_dispatch(op.type, shape.cast, shape.scale_order, [&]<class A>() { run.template operator()<A>(op.work); });
  }
  void operator()(const CombineOperation& op) const {
    with_moe_combine(op.type, op.ranks, [&]<class A>() { run.template operator()<A>(op.work); });
  }
};

}  // namespace weft::detail
