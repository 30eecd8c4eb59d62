// The part of a message that a pack of the wire carries.
#pragma once

#include <cstddef>

#include "weft/types.hpp"

namespace weft::detail {

// Bytes of a message that one pack of the wire carries: 16, or 8 for types without a sentinel.
constexpr std::size_t payload_bytes(DataType type) {
  return is_floating(type) ? 16 : 8;
}

}  // namespace weft::detail
