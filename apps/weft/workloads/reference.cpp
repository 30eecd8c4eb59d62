#include "workloads/reference.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstring>

#include "numeric/numeric.hpp"
#include "oracle/reduction.hpp"

namespace weft::cli {
namespace {

// The most by which two sums of `ranks` numbers may differ when every addition rounds to the type, whatever the order.
double tolerance(const ReferenceArgs& args, std::size_t index) {
  if (args.op == ReduceOp::max || args.op == ReduceOp::min) return 0;
  constexpr std::array<double, 3> rounding = {0x1p-8, 0x1p-11, 0x1p-24};  // half a unit in the last place
  double magnitudes = 0;
  for (int r = 0; r < args.ranks; ++r)
    magnitudes +=
        std::fabs(pattern::number(args.data, args.type, pattern::hash(args.first_rank + r, args.step, index)));
  const double of_sum = 2 * args.ranks * rounding[static_cast<std::size_t>(args.type)] * magnitudes;
  return args.op == ReduceOp::avg ? of_sum / args.ranks : of_sum;
}

}  // namespace

// Inputs, made before every call: by the library's conversions, which are quick, and exact for these numbers.
void fill(std::byte* buffer, std::size_t begin, std::size_t end, DataType type, Data data, int rank, int step) {
  const auto store = [&](std::size_t i, auto bits) { std::memcpy(buffer + i * sizeof(bits), &bits, sizeof(bits)); };
  for (std::size_t i = begin; i < end; ++i) {
    const auto h = pattern::hash(rank, step, i);
    if (!is_floating(type)) {
      const std::uint64_t bits = pattern::integer(data, h);
      if (type == DataType::i32) store(i, static_cast<std::uint32_t>(bits));
      if (type == DataType::i64) store(i, bits);
      if (type == DataType::u8) store(i, static_cast<std::uint8_t>(bits));
      continue;
    }
    const float number = pattern::number(data, type, h);
    if (type == DataType::bf16) store(i, detail::f32_to_bf16(number));
    if (type == DataType::f16) store(i, detail::f32_to_f16(number));
    if (type == DataType::f32) store(i, number);
  }
}

void reduce_reference(const ReferenceArgs& args, std::size_t begin, std::size_t end, std::byte* result) {
  const std::span tensor(result, end * size_of(args.type));
  const oracle::Format format = oracle::format_of(args.type);
  const auto collect = [&](std::size_t i, auto& values, const auto& value) {
    for (int r = 0; r < args.ranks; ++r)
      values[static_cast<std::size_t>(r)] = value(pattern::hash(args.first_rank + r, args.step, i));
  };
  std::vector<std::uint64_t> words(static_cast<std::size_t>(args.ranks));
  std::vector<float> numbers(words.size());
  for (std::size_t i = begin; i < end; ++i) {
    if (!is_floating(args.type)) {
      collect(i, words, [&](std::uint32_t h) { return pattern::integer(args.data, h); });
      oracle::put(tensor, args.type, i, oracle::reduce_values(args.type, args.op, words));
      continue;
    }
    collect(i, numbers, [&](std::uint32_t h) { return pattern::number(args.data, args.type, h); });
    oracle::put(tensor, args.type, i, oracle::round_to(format, oracle::reduce_values(args.op, numbers)));
  }
}

std::string compare(const ReferenceArgs& args, std::span<const std::byte> reference, std::span<const std::byte> got,
                    bool exact, std::size_t begin) {
  // An empty tensor may have no address, which memcmp() does not take.
  if (reference.empty() || std::memcmp(reference.data(), got.data(), reference.size()) == 0) return {};
  const std::size_t width = size_of(args.type);
  const std::size_t count = reference.size() / width;
  std::size_t wrong = 0;
  std::size_t first = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (std::memcmp(reference.data() + i * width, got.data() + i * width, width) == 0) continue;
    const double difference =
        std::fabs(oracle::number_at(reference, args.type, i) - oracle::number_at(got, args.type, i));
    if (!exact && is_floating(args.type) && difference <= tolerance(args, begin + i)) continue;  // false for NaN
    if (wrong++ == 0) first = i;
  }
  if (wrong == 0) return {};
  return fmt::format("{} of {} elements wrong, first [{}]: {} instead of {}", wrong, count, first,
                     oracle::number_at(got, args.type, first), oracle::number_at(reference, args.type, first));
}

}  // namespace weft::cli
