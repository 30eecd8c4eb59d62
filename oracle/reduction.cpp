#include "oracle/reduction.hpp"

#include <cmath>
#include <limits>

namespace weft::oracle {
namespace {

float larger(float a, float b) {
  if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<float>::quiet_NaN();
  if (a == b) return std::signbit(a) ? b : a;
  return a > b ? a : b;
}

}  // namespace

float reduce_values(Op op, std::span<const float> values) {
  float total = values[0];
  for (std::size_t rank = 1; rank < values.size(); ++rank) {
    const float next = values[rank];
    total = op.name == Op::sum ? total + next : larger(total, next);
  }
  return total;
}

std::uint32_t reduce_values(Op op, std::span<const std::uint32_t> values) {
  std::uint32_t total = values[0];
  for (const std::uint32_t next : values.subspan(1)) {
    const bool more = static_cast<std::int32_t>(next) > static_cast<std::int32_t>(total);
    total = op.name == Op::sum ? total + next : more ? next : total;
  }
  return total;
}

std::uint32_t reduce_element(Type type, Op op, std::span<const std::uint32_t> values) {
  if (type.name == Type::i32) return reduce_values(op, values);
  const Format format = format_of(type);
  std::vector<float> numbers;
  numbers.reserve(values.size());
  for (const std::uint32_t bits : values) numbers.push_back(static_cast<float>(value_of(format, bits)));
  return round_to(format, reduce_values(op, numbers));
}

Bytes reduce(Type type, Op op, std::span<const Bytes> inputs) {
  Bytes result(inputs[0].size());
  std::vector<std::uint32_t> values(inputs.size());
  for (std::size_t i = 0; i < result.size() / bytes_of(type); ++i) {
    for (std::size_t rank = 0; rank < inputs.size(); ++rank) values[rank] = get(inputs[rank], type, i);
    put(result, type, i, reduce_element(type, op, values));
  }
  return result;
}

}  // namespace weft::oracle
