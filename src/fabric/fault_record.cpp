#include "fabric/fault_record.hpp"

#include <fmt/format.h>

#include <atomic>

namespace weft::detail {

FaultRecord read_record(FaultRecord& shared) {
  FaultRecord copy{};
  copy.slow_epoch = std::atomic_ref(shared.slow_epoch).load(std::memory_order_relaxed);
  copy.slow_peer = std::atomic_ref(shared.slow_peer).load(std::memory_order_relaxed);
  copy.complete = std::atomic_ref(shared.complete).load(std::memory_order_acquire);
  return copy.complete != 0 ? shared : copy;
}

std::string slow_wait_text(std::chrono::nanoseconds deadline) {
  const std::uint64_t seconds = slow_wait_ns(0) / 1'000'000'000;
  return deadline.count() != 0 ? "a tenth of the deadline" : fmt::format("{} s; there is no deadline", seconds);
}

}  // namespace weft::detail
