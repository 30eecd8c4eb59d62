#include "executors/cuda_launch.cuh"

namespace weft::detail {

void launch_operation(const PlannedCall& planned, const TakeOperation& operation) {
  if (operation.whole) return launch_one_rank<TakeRows<true>>(planned, operation.work);
  launch_one_rank<TakeRows<false>>(planned, operation.work);
}

void load_takes(Loader& loader) {
  loader.load_one_rank<TakeRows<true>>();
  loader.load_one_rank<TakeRows<false>>();
}

}  // namespace weft::detail
