// Reads, on the host, a record that calls of this rank write.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "protocol/channel.hpp"

namespace weft::detail {

// The fault once it is complete, without the words on slow waits, which other calls may still write. Waits for nothing.
FaultRecord read_record(FaultRecord& shared);

struct SlowWait {
  std::uint32_t epoch, peer;

  bool operator==(const SlowWait&) const = default;
};
// The newest; nothing if there was none. Waits for nothing.
std::optional<SlowWait> read_slow_wait(FaultRecord& shared);

// slow_wait_ns() in words, for a warning.
std::string slow_wait_text(std::chrono::nanoseconds deadline);

}  // namespace weft::detail
