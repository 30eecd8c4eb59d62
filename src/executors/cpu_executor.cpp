#include "executors/executor.hpp"

namespace weft::detail {

bool run_on_cpu(const KernelCall& call, Liveness* liveness) {
  return call.bound.kernel->on_cpu(call.call, call.bound.work, liveness);
}

}  // namespace weft::detail
