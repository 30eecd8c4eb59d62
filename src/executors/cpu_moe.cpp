#include "core/dispatch_moe.hpp"
#include "executors/cpu_run.hpp"

namespace weft::detail {

void run_operation(const Call& call, const MoeOperation& operation, Liveness* liveness) {
  const auto run = [&]<class A>(const typename A::Work& work) { run_call<A>(call, work, liveness); };
  std::visit(ServeMoe<decltype(run)>{run}, operation);
}

}  // namespace weft::detail
