// Scales of a tensor's rows that are cast to e4m3.
#pragma once

#include <cstdint>

namespace weft::detail {

enum class RowScaling : std::uint8_t { none, fixed, per_token, per_group };

}  // namespace weft::detail
