// Communicators whose calls are counted from another number than 1.
#pragma once

#include <cstdint>

#include "comm/first_epoch.hpp"

namespace weft::test {

// While it lives, the communicators that this process creates begin at `first`.
class FirstEpoch {
 public:
  explicit FirstEpoch(std::uint32_t first) { detail::first_epoch() = first; }
  ~FirstEpoch() { detail::first_epoch() = 1; }
  FirstEpoch(const FirstEpoch&) = delete;
  FirstEpoch& operator=(const FirstEpoch&) = delete;
};

}  // namespace weft::test
