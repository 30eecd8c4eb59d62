#include "core/dispatch_moves.hpp"
#include "executors/cpu_run.hpp"

namespace weft::detail {

bool run_operation(const Call& call, const MoveOperation& operation, Liveness* liveness) {
  bool good = false;
  const auto run = [&]<class A>(const typename A::Work& work) { good = run_call<A>(call, work, liveness); };
  std::visit(ServeMove<decltype(run)>{run}, operation);
  return good;
}

}  // namespace weft::detail
