#include <variant>

#include "executors/cpu_run.hpp"
#include "executors/executor.hpp"

namespace weft::detail {

void run_on_cpu(const PlannedCall& planned, Liveness* liveness) {
  std::visit([&](const auto& operation) { run_operation(planned.call, operation, liveness); }, planned.operation);
}

}  // namespace weft::detail
