#include "workloads/norm_reference.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "numeric/numeric.hpp"
#include "weft/moe.hpp"

namespace weft::cli {
namespace {

// One row of the outputs, beginning with element `begin`.
struct Row {
  const NormReferenceArgs& args;
  const NormOutputs& got;
  std::size_t begin;

  std::size_t number() const { return begin / args.hidden; }
  double output(std::size_t i) const { return load_number(got.normed.data(), begin + i, args.sum.type); }
};

std::string compare_residual(const Row& row, std::span<const std::byte> wanted) {
  const DataType type = row.args.sum.type;
  for (std::size_t i = row.begin; i < row.begin + row.args.hidden; ++i) {
    const std::size_t at = i * size_of(type);
    if (std::memcmp(wanted.data() + at, row.got.residual.data() + at, size_of(type)) == 0) continue;
    return fmt::format("residual_output [{}] of row {}: {} instead of {}", i - row.begin, row.number(),
                       load_number(row.got.residual.data(), i, type), load_number(wanted.data(), i, type));
  }
  return {};
}

// `residual`: the expected residual of the row.
std::string compare_normed(const Row& row, std::span<const std::byte> residual, std::span<const double> weights) {
  const NormReferenceArgs& args = row.args;
  const DataType type = args.sum.type;
  double squares = 0;
  for (std::size_t i = 0; i < args.hidden; ++i) {
    const double value = load_number(residual.data(), row.begin + i, type);
    squares += value * value;
  }
  const double factor = 1 / std::sqrt(squares / static_cast<double>(args.hidden) + args.epsilon);
  for (std::size_t i = 0; i < args.hidden; ++i) {
    std::uint16_t bits[2] = {};
    auto* const wanted = reinterpret_cast<std::byte*>(&bits[0]);
    store_float(wanted, 0, type,
                static_cast<float>(load_number(residual.data(), row.begin + i, type) * factor * weights[i]));
    std::memcpy(&bits[1], row.got.normed.data() + (row.begin + i) * sizeof(bits[1]), sizeof(bits[1]));
    if (std::abs(bits[0] - bits[1]) <= 2 || load_number(wanted, 0, type) == row.output(i)) continue;
    return fmt::format("normed [{}] of row {}: {} instead of {}", i, row.number(), row.output(i),
                       load_number(wanted, 0, type));
  }
  return {};
}

// The scale, as stored, of columns whose largest magnitude is `largest`, and its inverse.
struct Scale {
  std::uint32_t bits;
  std::size_t bytes;
  float inverse;
};
Scale scale_of(const NormReferenceArgs& args, float largest) {
  if (*args.form.fp8 == Fp8Scaling::fixed) return {.bits = 0, .bytes = 0, .inverse = 1.0f / args.scale};
  const bool power_of_two = args.form.scale_type == ScaleType::ue8m0;
  const auto [scale, inverse] = fp8_scale(largest, power_of_two);
  const auto bits = detail::bits_of<std::uint32_t>(scale);
  if (power_of_two) return {.bits = bits >> 23, .bytes = 1, .inverse = inverse};  // the biased exponent
  return {.bits = bits, .bytes = 4, .inverse = inverse};
}

std::string compare_fp8(const Row& row) {
  const NormReferenceArgs& args = row.args;
  const std::size_t width = *args.form.fp8 == Fp8Scaling::per_128_columns ? kScaleColumns : args.hidden;
  const std::size_t groups = args.hidden / width;
  for (std::size_t group = 0; group < groups; ++group) {
    float largest = 0;
    for (std::size_t i = group * width; i < (group + 1) * width; ++i)
      largest = std::max(largest, static_cast<float>(std::fabs(row.output(i))));
    const Scale scale = scale_of(args, largest);
    std::uint32_t bits = 0;
    if (scale.bytes != 0)
      std::memcpy(&bits, row.got.scales.data() + (row.number() * groups + group) * scale.bytes, scale.bytes);
    if (bits != scale.bits)
      return fmt::format("scale {} of row {}: {:#x} instead of {:#x}", group, row.number(), bits, scale.bits);
    for (std::size_t i = group * width; i < (group + 1) * width; ++i) {
      const auto wanted = detail::f32_to_e4m3(static_cast<float>(row.output(i)) * scale.inverse);
      const auto found = std::to_integer<std::uint32_t>(row.got.fp8[row.begin + i]);
      if (found != wanted)
        return fmt::format("fp8 [{}] of row {}: {:#x} instead of {:#x}", i, row.number(), found, wanted);
    }
  }
  return {};
}

}  // namespace

std::string compare_norm(const NormReferenceArgs& args, std::span<const std::byte> sum, const NormOutputs& got) {
  const ReferenceArgs& of = args.sum;
  const auto number = [&](int rank, std::size_t i) {
    return pattern::number(of.data, of.type, pattern::hash(rank, 0, i));
  };
  std::vector<std::byte> residual(sum.size());
  std::vector<double> weights(args.hidden);
  for (std::size_t i = 0; i < args.hidden; ++i)
    weights[i] = args.form.gamma_plus_one ? number(of.ranks + 1, i) + 1.0f : number(of.ranks + 1, i);
  for (std::size_t begin = 0; begin < of.count; begin += args.hidden) {
    for (std::size_t i = begin; i < begin + args.hidden; ++i) {
      const double added = args.form.residual ? number(of.ranks, i) : 0;
      store_float(residual.data(), i, of.type, static_cast<float>(load_number(sum.data(), i, of.type) + added));
    }
    const Row row{.args = args, .got = got, .begin = begin};
    std::string wrong = compare_residual(row, residual);
    if (wrong.empty()) wrong = compare_normed(row, residual, weights);
    if (wrong.empty() && args.form.fp8) wrong = compare_fp8(row);
    if (!wrong.empty()) return wrong;
  }
  return {};
}

}  // namespace weft::cli
