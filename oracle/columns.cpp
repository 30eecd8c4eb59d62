#include "oracle/columns.hpp"

#include <cmath>

namespace weft::oracle {
namespace {

RightBits capped(double x, float scale, float cap) {
  const float factor = scale / cap;
  const double value = cap * std::tanh(x * factor);
  if (value == 0 || std::isnan(value)) return right_in_f32(value, 0);
  // Three units, which have an end where numbers have no full significand.
  return right_in_f32(value, 3 * (std::fabs(value) * 0x1p-23 + cap * 0x1p-149));
}

}  // namespace

RightBits changed_element(const ColumnChange& change, std::uint64_t bits) {
  if (change.keeps_bits()) return {bits, bits};
  const double x = value_of(format_of(change.from), static_cast<std::uint32_t>(bits));
  const RightBits right =
      change.soft_cap == 0 ? right_in_f32(x * change.scale, 0) : capped(x, change.scale, change.soft_cap);
  return rounded_again(format_of(change.to), right);
}

}  // namespace weft::oracle
