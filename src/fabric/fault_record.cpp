#include "fabric/fault_record.hpp"

#include <fmt/format.h>

#include <atomic>
#include <cstddef>
#include <cstring>

namespace weft::detail {

FaultRecord read_record(FaultRecord& shared) {
  FaultRecord copy{};
  const std::uint32_t complete = std::atomic_ref(shared.complete).load(std::memory_order_acquire);
  if (complete != 0) std::memcpy(&copy, &shared, offsetof(FaultRecord, slow_epoch));
  return copy;
}

std::optional<SlowWait> read_slow_wait(FaultRecord& shared) {
  const std::uint32_t epoch = std::atomic_ref(shared.slow_epoch).load(std::memory_order_acquire);
  if (epoch == 0) return std::nullopt;
  return SlowWait{epoch, std::atomic_ref(shared.slow_peer).load(std::memory_order_relaxed)};
}

std::string slow_wait_text(std::chrono::nanoseconds deadline) {
  const std::uint64_t seconds = slow_wait_ns(0) / 1'000'000'000;
  return deadline.count() != 0 ? "a tenth of the deadline" : fmt::format("{} s; there is no deadline", seconds);
}

}  // namespace weft::detail
