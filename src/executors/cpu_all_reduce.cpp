#include "core/dispatch.hpp"
#include "executors/cpu_run.hpp"

namespace weft::detail {

void run_operation(const Call& call, const AllReduceOperation& operation, Liveness* liveness) {
  with_all_reduce(operation.instance, operation.algorithm,
                  [&]<class A>() { run_call<A>(call, operation.work, liveness); });
}

}  // namespace weft::detail
