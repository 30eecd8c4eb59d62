// The production templates, with seeded bugs, on CPU ranks whose slots are more than 4 GiB apart. The simulator's
// memory is too small for that.
#pragma once

#include <cstdint>
#include <string>

namespace weft::sim {

// The first fault of a few calls of every operation, or an empty string. Waits end at the deadline.
std::string what_goes_wrong_far_away(std::uint64_t deadline_ns);

}  // namespace weft::sim
