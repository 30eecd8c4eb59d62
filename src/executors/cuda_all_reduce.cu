#include "core/dispatch.hpp"
#include "executors/cuda_launch.cuh"

namespace weft::detail {

void launch_operation(const PlannedCall& planned, const AllReduceOperation& operation) {
  with_all_reduce(operation.instance, operation.algorithm, [&]<class A>() { launch<A>(planned, operation.work); });
}

void load_all_reduces(Loader& loader) {
  const auto load = [&]<class A>() { loader.load<A>(); };
  for (const DataType type : {DataType::bf16, DataType::f16, DataType::f32}) {
    for (const Algorithm algorithm : {Algorithm::multimem_one_shot, Algorithm::multimem_two_shot}) {
      with_multimem(type, algorithm, load);
    }
  }
  for (const DataType type : {DataType::bf16, DataType::f16, DataType::f32, DataType::i32}) {
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::max}) {
      for (const Algorithm algorithm : {Algorithm::one_shot, Algorithm::two_shot, Algorithm::bulk}) {
        for (std::uint32_t size = 2; size <= 8; ++size) {
          with_all_reduce({.type = type, .op = op, .size = size, .whole = true}, algorithm, load);
        }
        with_all_reduce({.type = type, .op = op, .size = 2, .whole = false}, algorithm, load);
      }
    }
  }
}

}  // namespace weft::detail
