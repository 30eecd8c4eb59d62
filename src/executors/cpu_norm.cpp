#include "core/dispatch_norm.hpp"
#include "executors/cpu_run.hpp"

namespace weft::detail {

bool run_operation(const Call& call, const NormOperation& operation, Liveness* liveness) {
  bool good = false;
  with_norm(NormInstance::of(operation), [&]<class A>() { good = run_call<A>(call, operation.work, liveness); });
  return good;
}

bool run_operation(const Call& call, const NormRowsOperation& operation, Liveness* liveness) {
  bool good = false;
  with_norm_rows(operation.type, [&]<class A>() { good = run_one_rank<A>(call, operation.work, liveness); });
  return good;
}

}  // namespace weft::detail
