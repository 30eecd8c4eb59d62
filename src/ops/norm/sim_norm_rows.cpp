#include "ops/norm/sim_norm_rows.hpp"

#include <algorithm>
#include <cmath>

#include "numeric/fp8.hpp"
#include "ops/norm/rms_norm.hpp"
#include "sim/all_reduce.hpp"

namespace weft::sim {
namespace {

using detail::Element;

// The sum of at most 32 values: neighbours first.
float tree(std::vector<float> sums) {
  sums.resize(32);
  for (; sums.size() > 1; sums.resize(sums.size() / 2)) {
    for (std::size_t i = 0; i < sums.size() / 2; ++i) sums[i] = sums[2 * i] + sums[2 * i + 1];
  }
  return sums[0];
}
// The sum of a row's packs' squares, in at most 32 segments (ops/norm/rms_norm.hpp).
float sum_of_squares(const std::vector<float>& packs) {
  std::vector<float> segments;
  for (auto begin = packs.begin(); begin != packs.end();) {
    const auto end = begin + std::min<std::ptrdiff_t>(detail::kSegmentPacks, packs.end() - begin);
    segments.push_back(tree({begin, end}));
    begin = end;
  }
  return tree(segments);
}

float widen(DataType type, std::uint32_t bits) {
  const auto narrow = static_cast<std::uint16_t>(bits);
  return type == DataType::f16 ? Element<DataType::f16>::widen(narrow) : Element<DataType::bf16>::widen(narrow);
}
std::uint32_t narrow(DataType type, float value) {
  return type == DataType::f16 ? Element<DataType::f16>::narrow(value) : Element<DataType::bf16>::narrow(value);
}

struct Scale {
  float value, inverse;
};
// The scale of columns with this largest magnitude. e4m3 ends at 448, and columns of zeros must not have scale 0.
Scale scale_of(float largest, const NormForm& form) {
  const float most = std::fmax(largest, form.floor);
  if (!form.power_of_two) return {most / 448.0f, 448.0f / most};
  int exponent = 0;
  if (std::frexp(most / 448.0f, &exponent) == 0.5f) --exponent;  // is a power of two
  return {std::ldexp(1.0f, exponent), std::ldexp(1.0f, -exponent)};
}

}  // namespace

std::uint64_t scale_groups(const NormForm& form, std::uint64_t columns) {
  constexpr std::uint64_t group = detail::kScalePacks * 8;
  return form.scaling == detail::RowScaling::per_group ? (columns + group - 1) / group : 1;
}

std::uint32_t weight_bits(DataType type, const NormForm& form, std::uint32_t element) {
  return form.gamma_f32 ? detail::bits_of<std::uint32_t>(widen(type, element)) ^ 0x7123u : element;
}

NormedRow normed_row(DataType type, const NormForm& form, std::uint64_t columns, const BitsOf& sum_of,
                     const BitsOf& residual, const BitsOf& gamma) {
  NormedRow made;
  std::vector<float> sums(columns / 8), x, y;
  for (std::uint64_t i = 0; i < columns; ++i) {
    std::uint32_t sum = sum_of(i);
    if (form.residual) sum = static_cast<std::uint32_t>(reduced(type, ReduceOp::sum, {sum, residual(i)}));
    made.residual.push_back(sum);
    x.push_back(widen(type, sum));
    sums[i / 8] += x[i] * x[i];
  }
  const float factor = 1.0f / std::sqrt(sum_of_squares(sums) * (1.0f / static_cast<float>(columns)) + 1e-5f);
  for (std::uint64_t i = 0; i < columns; ++i) {
    const float weight = form.gamma_f32 ? detail::bits_of<float>(gamma(i)) : widen(type, gamma(i));
    made.output.push_back(narrow(type, x[i] * factor * (form.gamma_plus_one ? weight + 1.0f : weight)));
    y.push_back(widen(type, made.output.back()));
  }
  if (form.scaling == detail::RowScaling::none) return made;
  const std::uint64_t groups = scale_groups(form, columns);
  const std::uint64_t width = groups == 1 ? columns : detail::kScalePacks * 8;
  for (std::uint64_t group = 0; group < groups; ++group) {
    const std::uint64_t begin = group * width, end = std::min(columns, begin + width);
    float largest = 0;
    for (std::uint64_t i = begin; i < end; ++i) largest = std::fmax(largest, std::fabs(y[i]));
    Scale scale = scale_of(largest, form);
    if (form.scaling == detail::RowScaling::fixed) {
      scale.inverse = 1.0f / kFixedScale;
    } else {
      made.scales.push_back(detail::bits_of<std::uint32_t>(scale.value) >> (form.power_of_two ? 23 : 0));
    }
    for (std::uint64_t i = begin; i < end; ++i) made.cast.push_back(detail::f32_to_e4m3(y[i] * scale.inverse));
  }
  return made;
}

detail::NormWork norm_work(const NormForm& form, std::uint64_t columns, const NormPlaces& at) {
  return {.input = at.memory + at.input,
          .residual = form.residual ? at.memory + at.residual : nullptr,
          .residual_output = at.memory + at.residual_output,
          .gamma = at.memory + at.gamma,
          .output = form.output ? at.memory + at.output : nullptr,
          .fp8 = reinterpret_cast<std::uint8_t*>(at.memory + at.fp8),
          .scales = at.memory + at.scales,
          .scale = reinterpret_cast<const float*>(at.memory + at.fixed),
          .input_stride = at.stride,
          .residual_stride = at.stride,
          .residual_output_stride = at.stride,
          .output_stride = at.stride,
          .fp8_stride = at.stride,
          .scale_row_stride = form.apart ? 1 : scale_groups(form, columns),
          .scale_group_stride = form.apart ? at.rows : 1,
          .rows = static_cast<std::uint32_t>(at.rows),
          .row_packs = static_cast<std::uint32_t>(columns / 8),
          .inverse_columns = 1.0f / static_cast<float>(columns),
          .epsilon = 1e-5f,
          .gamma_plus_one = form.gamma_plus_one,
          .scaling = form.scaling,
          .power_of_two = form.power_of_two,
          .floor = form.floor};
}

}  // namespace weft::sim
