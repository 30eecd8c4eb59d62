#include "core/dispatch_moves.hpp"
#include "executors/cuda_launch.cuh"

namespace weft::detail {

void launch_operation(const PlannedCall& planned, const MoveOperation& operation) {
  const auto run = [&]<class A>(const typename A::Work& work) { launch<A>(planned, work); };
  std::visit(ServeMove<decltype(run)>{run}, operation);
}

void load_moves(Loader& loader) {
  const auto load = [&]<class A>() { loader.load<A>(); };
  for (const bool whole : {false, true}) {
    with_copy<EqualShares, 1, false>(whole, load);
    with_copy<EqualShares, 1, true>(whole, load);
    with_copy<CountedShares, 1, false>(whole, load);
    with_copy<CountedShares, 1, true>(whole, load);
    with_copy<CountedShares, kMaxTensors, false>(whole, load);
    with_copy<CountedShares, kMaxTensors, true>(whole, load);
  }
  for (const DataType type : {DataType::bf16, DataType::f16, DataType::f32, DataType::i32}) {
    for (const std::uint32_t size : {0, 2, 4, 8}) {
      const InstanceQuery query{.type = type, .op = ReduceOp::sum, .size = size, .whole = size != 0};
      with_reduce_scatter<EqualShares>(query, load);
      with_reduce_scatter<CountedShares>(query, load);
    }
  }
  load.template operator()<Barrier>();
  load.template operator()<PushCounts>();
}

}  // namespace weft::detail
