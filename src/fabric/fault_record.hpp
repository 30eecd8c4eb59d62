// Reads, on the host, a record that calls of this rank write.
#pragma once

#include <chrono>
#include <string>

#include "protocol/channel.hpp"

namespace weft::detail {

// The whole record once it is complete; before, only its last two words, about slow waits. Waits for nothing.
FaultRecord read_record(FaultRecord& shared);

// slow_wait_ns() in words, for a warning.
std::string slow_wait_text(std::chrono::nanoseconds deadline);

}  // namespace weft::detail
