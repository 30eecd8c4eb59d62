#include "kernel/executor.hpp"

namespace weft::detail {

bool run_on_cpu(const KernelCall& call, const PeerWatch* watch) {
  return call.bound.kernel->on_cpu(call.call, call.bound.work, watch);
}

}  // namespace weft::detail
