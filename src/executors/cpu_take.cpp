#include "executors/cpu_run.hpp"

namespace weft::detail {

void run_operation(const Call& call, const TakeOperation& operation, Liveness* liveness) {
  CpuThread thread(0, 1, liveness);
  if (operation.whole) return TakeRows<true>::run(thread, call, operation.work);
  TakeRows<false>::run(thread, call, operation.work);
}

}  // namespace weft::detail
