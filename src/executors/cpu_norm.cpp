#include "core/dispatch_norm.hpp"
#include "executors/cpu_run.hpp"

namespace weft::detail {

void run_operation(const Call& call, const NormOperation& operation, Liveness* liveness) {
  with_norm(NormInstance::of(operation), [&]<class A>() { run_call<A>(call, operation.work, liveness); });
}

}  // namespace weft::detail
