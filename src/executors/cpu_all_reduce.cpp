#include "core/dispatch.hpp"
#include "executors/cpu_run.hpp"

namespace weft::detail {

bool run_operation(const Call& call, const AllReduceOperation& operation, Liveness* liveness) {
  bool good = false;
  with_all_reduce(operation.instance, operation.algorithm,
                  [&]<class A>() { good = run_call<A>(call, operation.work, liveness); });
  return good;
}

}  // namespace weft::detail
