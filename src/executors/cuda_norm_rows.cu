#include "core/dispatch_norm.hpp"
#include "executors/cuda_launch.cuh"

namespace weft::detail {

void launch_operation(const PlannedCall& planned, const NormRowsOperation& operation) {
  with_norm_rows(operation.type, [&]<class A>() { launch_one_rank<A>(planned, operation.work); });
}

void load_norm_rows(Loader& loader) {
  for (const DataType type : {DataType::bf16, DataType::f16}) {
    with_norm_rows(type, [&]<class A>() { loader.load_one_rank<A>(); });
  }
}

}  // namespace weft::detail
