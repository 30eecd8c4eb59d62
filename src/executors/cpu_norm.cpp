#include "core/dispatch_norm.hpp"
#include "executors/cpu_run.hpp"

namespace weft::detail {

void run_operation(const Call& call, const NormOperation& operation, Liveness* liveness) {
  with_norm(NormInstance::of(operation), [&]<class A>() { run_call<A>(call, operation.work, liveness); });
}

void run_operation(const Call& call, const NormRowsOperation& operation, Liveness* liveness) {
  with_norm_rows(operation.type, [&]<class A>() { run_one_rank<A>(call, operation.work, liveness); });
}

}  // namespace weft::detail
