#include "oracle/norm.hpp"

#include <cmath>

namespace weft::oracle {
namespace {

// 2^k leaves, halves first; those that are missing are 0.
float tree(const std::vector<float>& leaves, std::size_t begin, std::size_t count) {
  if (count == 1) return begin < leaves.size() ? leaves[begin] : 0.0f;
  const float left = tree(leaves, begin, count / 2);
  return left + tree(leaves, begin + count / 2, count / 2);
}

float sum_of_squares(std::span<const float> row) {
  std::vector<float> packs, segments, columns;
  for (std::size_t i = 0; i < row.size(); i += 8) {
    float sum = row[i] * row[i];
    for (std::size_t k = 1; k < 8; ++k) sum += row[i + k] * row[i + k];
    packs.push_back(sum);
  }
  for (std::size_t i = 0; i < packs.size(); i += 32) segments.push_back(tree(packs, i, 32));
  for (std::size_t c = 0; c < 32; ++c) {
    float sum = 0;
    for (std::size_t s = c; s < segments.size(); s += 32) sum += segments[s];
    columns.push_back(sum);
  }
  return tree(columns, 0, 32);
}

}  // namespace

std::vector<std::uint32_t> add_rows(Type type, std::span<const std::uint32_t> a, std::span<const std::uint32_t> b) {
  const Format format = format_of(type);
  std::vector<std::uint32_t> sums;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const float sum = static_cast<float>(value_of(format, a[i])) + static_cast<float>(value_of(format, b[i]));
    sums.push_back(round_to(format, sum));
  }
  return sums;
}

std::vector<float> values_of(Type type, std::span<const std::uint32_t> row) {
  std::vector<float> values;
  for (const std::uint32_t bits : row) values.push_back(static_cast<float>(value_of(format_of(type), bits)));
  return values;
}

float norm_factor(std::span<const float> row, float epsilon) {
  const float mean = sum_of_squares(row) * (1.0f / static_cast<float>(row.size()));
  return 1.0f / std::sqrt(mean + epsilon);
}

std::vector<std::uint32_t> normed_row(Type type, std::span<const std::uint32_t> row, std::span<const float> weights,
                                      bool plus_one, float epsilon) {
  const std::vector<float> values = values_of(type, row);
  const float factor = norm_factor(values, epsilon);
  std::vector<std::uint32_t> normed;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float weight = plus_one ? weights[i] + 1.0f : weights[i];
    normed.push_back(round_to(format_of(type), values[i] * factor * weight));
  }
  return normed;
}

}  // namespace weft::oracle
