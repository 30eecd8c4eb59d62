// A hook for tests of wrap-around.
#pragma once

#include <atomic>
#include <cstdint>

namespace weft::detail {

// Number of the first call on each channel of the communicators that this process creates from now on: 1 unless a test
// stores another one. Ranks of one communicator must have the same, which nobody compares.
std::atomic<std::uint32_t>& first_epoch();

}  // namespace weft::detail
