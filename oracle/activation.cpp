#include "oracle/activation.hpp"

#include <algorithm>
#include <cmath>

namespace weft::oracle {
namespace {

std::vector<RightBits> products_of(Type type, std::span<const std::byte> gate_up) {
  const std::size_t middle = gate_up.size() / bytes_of(type) / 2;
  std::vector<RightBits> products;
  for (std::size_t i = 0; i < middle; ++i) {
    const double gate = number_at(gate_up, type, i), up = number_at(gate_up, type, middle + i);
    const double product = silu_mul(gate, up), magnitude = std::fabs(product);
    double slack = 3 * (magnitude * 0x1p-23 + std::fabs(up) * 0x1p-149);
    if (gate < -86) slack += magnitude;
    if (product == 0 || !std::isfinite(slack)) slack = 0;
    products.push_back(right_in_f32(product, slack));
  }
  return products;
}

float number_of(std::uint64_t bits) {
  return static_cast<float>(value_of(format_of(Type::f32), static_cast<std::uint32_t>(bits)));
}
std::uint64_t bits_of(double value) {
  return round_to(format_of(Type::f32), value);
}

}  // namespace

double silu_mul(double gate, double up) {
  const bool least = std::isinf(gate) && gate < 0;
  return (least ? -0.0 : gate / (1 + std::exp(-gate))) * up;
}

std::vector<RightBits> activated_row(Type type, std::span<const std::byte> gate_up) {
  const Format format = format_of(type);
  std::vector<RightBits> row = products_of(type, gate_up);
  for (RightBits& one : row) {
    const auto [nearest, farthest] = rounded_again(format, one);
    one = {bits_of(value_of(format, static_cast<std::uint32_t>(nearest))),
           bits_of(value_of(format, static_cast<std::uint32_t>(farthest)))};
  }
  return row;
}

std::vector<RightBits> activated_row(Type type, std::span<const std::byte> gate_up, std::size_t columns,
                                     Scales scales) {
  std::vector<RightBits> row = products_of(type, gate_up);
  for (std::size_t begin = 0; begin < row.size(); begin += columns) {
    const auto group = std::span(row).subspan(begin).first(std::min(columns, row.size() - begin));
    std::vector<float> nearest, farthest;
    for (const RightBits& one : group) {
      nearest.push_back(number_of(one.nearest));
      farthest.push_back(number_of(one.farthest));
    }
    const Scale least = scale_of(largest_magnitude(nearest), scales != Scales::f32);
    const Scale most = scale_of(largest_magnitude(farthest), scales != Scales::f32);
    for (std::size_t i = 0; i < group.size(); ++i) {
      // A larger scale makes a smaller number, so each bound takes one of either.
      const float low = nearest[i] * most.inverse, high = farthest[i] * least.inverse;
      group[i] = {bits_of(number_of_e4m3(round_to_e4m3(low)) * least.scale),
                  bits_of(number_of_e4m3(round_to_e4m3(high)) * most.scale)};
    }
  }
  return row;
}

}  // namespace weft::oracle
