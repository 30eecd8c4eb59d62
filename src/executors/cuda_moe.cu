#include "core/dispatch_moe.hpp"
#include "executors/cuda_launch.cuh"

namespace weft::detail {

void launch_operation(const PlannedCall& planned, const MoeOperation& operation) {
  const auto run = [&]<class A>(const typename A::Work& work) { launch<A>(planned, work); };
  std::visit(ServeMoe<decltype(run)>{run}, operation);
}

void load_moe(Loader& loader) {
  const auto load = [&]<class A>() { loader.load<A>(); };
  with_moe_dispatch(RowType::bf16, RowCast::none, ScaleOrder::rows, load);
  for (const RowType type : {RowType::bf16, RowType::f16}) {
    for (const ScaleOrder order : {ScaleOrder::rows, ScaleOrder::columns}) {
      with_moe_dispatch(type, RowCast::fp8, order, load);
    }
  }
  for (const std::uint32_t ranks : {4u, 8u}) {
    for (const DataType type : {DataType::bf16, DataType::f16}) with_moe_combine(type, ranks, load);
  }
}

}  // namespace weft::detail
