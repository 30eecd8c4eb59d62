#include <variant>

#include "executors/cpu_run.hpp"
#include "executors/executor.hpp"

namespace weft::detail {

bool run_on_cpu(const PlannedCall& planned, Liveness* liveness) {
  return std::visit([&](const auto& operation) { return run_operation(planned.call, operation, liveness); },
                    planned.operation);
}

}  // namespace weft::detail
