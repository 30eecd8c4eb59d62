// The kernels of dispatch and combine.
#include "core/dispatch.hpp"
#include "executors/cuda_launch.cuh"

namespace weft::detail {

void launch_moe(const PlannedCall& planned) {
  if (const auto* dispatch = std::get_if<DispatchOperation>(&planned.operation)) {
    return with_moe_dispatch(dispatch->type, dispatch->work.exchange.shape.cast,
                             [&]<class A>() { launch_instance<A>(planned, dispatch->work); });
  }
  const auto& combine = std::get<CombineOperation>(planned.operation);
  with_moe_combine(combine.type, [&]<class A>() { launch_instance<A>(planned, combine.work); });
}

void load_moe(Loader& loader) {
  const auto load = [&]<class A>() { loader.operator()<A>(); };
  for (const RowType type : {RowType::bf16, RowType::f16}) {
    for (const RowCast cast : {RowCast::none, RowCast::fp8}) with_moe_dispatch(type, cast, load);
  }
  for (const DataType type : {DataType::bf16, DataType::f16}) with_moe_combine(type, load);
}

}  // namespace weft::detail
