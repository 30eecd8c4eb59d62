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

float smaller(float a, float b) {
  if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<float>::quiet_NaN();
  if (a == b) return std::signbit(b) ? b : a;
  return a < b ? a : b;
}

// The bits that an element of the type has.
std::uint64_t wrapped(Type type, std::uint64_t bits) {
  if (type.name == Type::u8) return bits & 0xff;
  if (type.name == Type::i32) return bits & 0xffffffff;
  return bits;
}

}  // namespace

float reduce_values(Op op, std::span<const float> values) {
  float total = values[0];
  for (std::size_t rank = 1; rank < values.size(); ++rank) {
    const float next = values[rank];
    if (op.name == Op::sum || op.name == Op::avg) total = total + next;
    if (op.name == Op::max) total = larger(total, next);
    if (op.name == Op::min) total = smaller(total, next);
  }
  return op.name == Op::avg ? total / static_cast<float>(values.size()) : total;
}

std::uint64_t reduce_values(Type type, Op op, std::span<const std::uint64_t> values) {
  // Modulo 2^64, of which the lower bits are the sum modulo fewer.
  std::uint64_t sum = 0;
  std::int64_t most = integer_of(type, values[0]), least = most;
  for (const std::uint64_t bits : values) {
    const std::int64_t next = integer_of(type, bits);
    sum += static_cast<std::uint64_t>(next);
    most = next > most ? next : most;
    least = next < least ? next : least;
  }
  if (op.name == Op::max) return wrapped(type, static_cast<std::uint64_t>(most));
  if (op.name == Op::min) return wrapped(type, static_cast<std::uint64_t>(least));
  if (op.name == Op::sum) return wrapped(type, sum);
  if (type.name == Type::u8) return sum / values.size();  // of 255 · ranks at most
  // C++ divides toward zero.
  const std::int64_t quotient = integer_of(type, sum) / static_cast<std::int64_t>(values.size());
  return wrapped(type, static_cast<std::uint64_t>(quotient));
}

namespace {

// `numbers`: room that is kept, so that not every element allocates.
std::uint64_t reduce_element(Type type, Op op, std::span<const std::uint64_t> values, std::vector<float>& numbers) {
  if (is_integer(type)) return reduce_values(type, op, values);
  const Format format = format_of(type);
  numbers.clear();
  for (const std::uint64_t bits : values)
    numbers.push_back(static_cast<float>(value_of(format, static_cast<std::uint32_t>(bits))));
  return round_to(format, reduce_values(op, numbers));
}

}  // namespace

std::uint64_t reduce_element(Type type, Op op, std::span<const std::uint64_t> values) {
  std::vector<float> numbers;
  return reduce_element(type, op, values, numbers);
}

Bytes reduce(Type type, Op op, std::span<const Bytes> inputs) {
  Bytes result(inputs[0].size());
  std::vector<std::uint64_t> values(inputs.size());
  std::vector<float> numbers;
  for (std::size_t i = 0; i < result.size() / bytes_of(type); ++i) {
    for (std::size_t rank = 0; rank < inputs.size(); ++rank) values[rank] = get(inputs[rank], type, i);
    put(result, type, i, reduce_element(type, op, values, numbers));
  }
  return result;
}

}  // namespace weft::oracle
