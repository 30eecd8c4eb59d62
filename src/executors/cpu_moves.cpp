#include "core/dispatch_moves.hpp"
#include "executors/cpu_run.hpp"

namespace weft::detail {

void run_operation(const Call& call, const MoveOperation& operation, Liveness* liveness) {
  const auto run = [&]<class A>(const typename A::Work& work) { run_call<A>(call, work, liveness); };
  std::visit(ServeMove<decltype(run)>{run}, operation);
}

}  // namespace weft::detail
