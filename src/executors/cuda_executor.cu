// Launches kernels: one instance per algorithm, type and batch.
#include "core/dispatch.hpp"
#include "executors/cuda_launch.cuh"

namespace weft::detail {
void launch_on_gpu(const PlannedCall& planned) {
  const auto* all_reduce = std::get_if<AllReduceOperation>(&planned.operation);
  if (all_reduce == nullptr) return launch_moe(planned);
  with_all_reduce(all_reduce->instance, all_reduce->algorithm,
                  [&]<class A>() { launch_instance<A>(planned, all_reduce->work); });
}

int load_kernels() {
  Loader loader;
  const auto load = [&]<class A>() { loader.operator()<A>(); };
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
  load_moe(loader);
  return loader.fewest();
}

}  // namespace weft::detail
