#include "executors/cpu_run.hpp"

namespace weft::detail {

bool run_operation(const Call& call, const TakeOperation& operation, Liveness* liveness) {
  if (operation.whole) return run_one_rank<TakeRows<true>>(call, operation.work, liveness);
  return run_one_rank<TakeRows<false>>(call, operation.work, liveness);
}

}  // namespace weft::detail
