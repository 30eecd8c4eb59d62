#include "fabric/fault_record.hpp"

#include <atomic>

namespace weft::detail {

FaultRecord read_record(FaultRecord& shared) {
  FaultRecord copy{};
  copy.slow_epoch = std::atomic_ref(shared.slow_epoch).load(std::memory_order_relaxed);
  copy.slow_peer = std::atomic_ref(shared.slow_peer).load(std::memory_order_relaxed);
  copy.complete = std::atomic_ref(shared.complete).load(std::memory_order_acquire);
  return copy.complete != 0 ? shared : copy;
}

}  // namespace weft::detail
