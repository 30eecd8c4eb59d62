#include "workloads/norm_reference.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "oracle/fp8.hpp"
#include "oracle/norm.hpp"
#include "weft/moe.hpp"

namespace weft::cli {
namespace {

using Row = std::vector<std::uint32_t>;

// One row of the outputs, beginning with element `begin`.
struct Outputs {
  const NormReferenceArgs& args;
  const NormOutputs& got;
  std::size_t begin;

  DataType type() const { return args.sum.type; }
  std::size_t number() const { return begin / args.hidden; }
  double value(std::uint32_t bits) const { return oracle::value_of(oracle::format_of(type()), bits); }
  Row row_of(std::span<const std::byte> tensor) const { return row_of(tensor, begin); }
  Row row_of(std::span<const std::byte> tensor, std::size_t first) const {
    Row row;
    for (std::size_t i = first; i < first + args.hidden; ++i) row.push_back(oracle::get(tensor, type(), i));
    return row;
  }
};

std::string compare_residual(const Outputs& of, const Row& wanted) {
  const std::size_t rows = of.got.residual.size() / size_of(of.type()) / of.args.hidden;
  if (of.number() < of.got.residual_row || of.number() >= of.got.residual_row + rows) return {};
  const Row found = of.row_of(of.got.residual, of.begin - of.got.residual_row * of.args.hidden);
  const auto [right, wrong] = std::ranges::mismatch(wanted, found);
  if (right == wanted.end()) return {};
  return fmt::format("residual_output [{}] of row {}: {} instead of {}", right - wanted.begin(), of.number(),
                     of.value(*wrong), of.value(*right));
}

std::string compare_normed(const Outputs& of, const Row& wanted) {
  const Row found = of.row_of(of.got.normed);
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const auto apart = static_cast<std::int64_t>(wanted[i]) - found[i];
    if (std::abs(apart) <= 2 || of.value(wanted[i]) == of.value(found[i])) continue;
    return fmt::format("normed [{}] of row {}: {} instead of {}", i, of.number(), of.value(found[i]),
                       of.value(wanted[i]));
  }
  return {};
}

// For a normed row.
oracle::Fp8Row fp8_row(const Outputs& of, const Row& row) {
  const std::vector<float> normed = oracle::values_of(of.type(), row);
  const Fp8Scaling scaling = *of.args.form.fp8;
  if (scaling == Fp8Scaling::fixed) return {oracle::cast_row(normed, of.args.scale), {}};
  const std::size_t columns = scaling == Fp8Scaling::per_128_columns ? kScaleColumns : normed.size();
  return oracle::cast_row(normed, columns,
                          of.args.form.scale_type == ScaleType::ue8m0 ? oracle::Scales::ue8m0 : oracle::Scales::f32);
}

std::string compare_fp8(const Outputs& of, const Row& normed) {
  const oracle::Fp8Row wanted = fp8_row(of, normed);
  const bool bytes = of.args.form.scale_type == ScaleType::ue8m0;
  const std::size_t scales = wanted.scales.size() / (bytes ? 1 : 4);
  const std::size_t groups = std::max(scales, std::size_t{1}), columns = of.args.hidden / groups;
  const auto number = [&](std::span<const std::byte> from, std::size_t index) {
    return bytes ? std::to_integer<std::uint32_t>(from[index]) : oracle::get(from, DataType::f32, index);
  };
  for (std::size_t group = 0; group < groups; ++group) {
    if (scales != 0) {
      const std::uint32_t right = number(wanted.scales, group);
      const std::uint32_t found = number(of.got.scales, of.number() * groups + group);
      if (found != right)
        return fmt::format("scale {} of row {}: {:#x} instead of {:#x}", group, of.number(), found, right);
    }
    for (std::size_t i = group * columns; i < (group + 1) * columns; ++i) {
      const std::byte right = wanted.numbers[i], found = of.got.fp8[of.begin + i];
      if (found != right)
        return fmt::format("fp8 [{}] of row {}: {:#x} instead of {:#x}", i, of.number(),
                           std::to_integer<unsigned>(found), std::to_integer<unsigned>(right));
    }
  }
  return {};
}

}  // namespace

std::string compare_norm(const NormReferenceArgs& args, std::span<const std::byte> sum, const NormOutputs& got) {
  const ReferenceArgs& of = args.sum;
  std::vector<std::byte> added(sum.size()), gamma(args.hidden * size_of(of.type));
  if (args.form.residual) fill(added.data(), 0, of.count, of.type, of.data, of.ranks, 0);
  fill(gamma.data(), 0, args.hidden, of.type, of.data, of.ranks + 1, 0);
  const std::vector<float> weights =
      oracle::values_of(of.type, Outputs{.args = args, .got = got, .begin = 0}.row_of(gamma));
  for (std::size_t begin = 0; begin < of.count; begin += args.hidden) {
    const Outputs row{.args = args, .got = got, .begin = begin};
    Row residual = row.row_of(sum);
    if (args.form.residual) residual = oracle::add_rows(of.type, residual, row.row_of(added));
    std::string wrong = compare_residual(row, residual);
    const bool has_normed = !got.normed.empty();
    const Row normed = oracle::normed_row(of.type, residual, weights, args.form.gamma_plus_one, args.epsilon);
    if (wrong.empty() && has_normed) wrong = compare_normed(row, normed);
    if (wrong.empty() && args.form.fp8) wrong = compare_fp8(row, has_normed ? row.row_of(got.normed) : normed);
    if (!wrong.empty()) return wrong;
  }
  return {};
}

}  // namespace weft::cli
