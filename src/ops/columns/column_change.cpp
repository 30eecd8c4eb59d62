#include "ops/columns/column_change.hpp"

#include <fmt/format.h>

#include <cmath>

#include "base/enum_text.hpp"
#include "base/fingerprint.hpp"
#include "comm/arguments.hpp"

namespace weft::detail {

void ColumnChange::check() const {
  check_choice("type", type, DataType::u8);
  const bool asked = output_f32 || scale != 1.0f || soft_cap != 0;
  require(!asked || type <= DataType::f32,
          "type: {} is not bf16, f16 or f32, and output_f32, scale or soft_cap changes elements", name(type));
  require(std::isfinite(scale), "scale: {} is not finite", scale);
  require(std::isfinite(soft_cap) && soft_cap >= 0, "soft_cap: {} is not finite, 0 or above", soft_cap);
  require(std::isfinite(factor()) && (factor() == 0) == (scale == 0),
          "scale: {} over a soft_cap of {} is beyond the range of f32", scale, soft_cap);
}

std::string ColumnChange::text() const {
  std::string text = output_f32 ? " to f32" : "";
  if (scale != 1.0f) text += fmt::format(" scale {}", scale);
  if (soft_cap != 0) text += fmt::format(" soft_cap {}", soft_cap);
  return text;
}

std::uint32_t ColumnChange::fingerprint() const {
  return detail::fingerprint("change", type, output_f32, bits_of<std::uint32_t>(scale),
                             bits_of<std::uint32_t>(soft_cap));
}

}  // namespace weft::detail
