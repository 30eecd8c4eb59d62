#include "core/dispatch_norm.hpp"
#include "executors/cuda_launch.cuh"

namespace weft::detail {

void launch_operation(const PlannedCall& planned, const NormOperation& operation) {
  with_norm(NormInstance::of(operation), [&]<class A>() { launch<A>(planned, operation.work); });
}

void load_norms(Loader& loader) {
  const auto load = [&]<class A>() { loader.load<A>(); };
  for (const Algorithm algorithm : {Algorithm::one_shot, Algorithm::two_shot}) {
    for (const bool casts : {false, true}) {
      for (const std::uint32_t size : {0, 2, 4, 8}) with_norm({DataType::bf16, size, algorithm, casts, false}, load);
      with_norm({DataType::bf16, 2, algorithm, casts, true}, load);
      with_norm({DataType::f16, 0, algorithm, casts, false}, load);
    }
  }
}

}  // namespace weft::detail
