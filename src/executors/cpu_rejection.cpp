#include "executors/cpu_run.hpp"

namespace weft::detail {

bool run_operation(const Call& call, const RejectionOperation&, Liveness* liveness) {
  return run_one_rank<Rejection>(call, {}, liveness);
}

}  // namespace weft::detail
