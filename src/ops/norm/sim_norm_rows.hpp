// The norm of a row, by plain loops.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "ops/norm/norm_work.hpp"
#include "sim/setup.hpp"

namespace weft::sim {

inline constexpr float kFixedScale = 0.375f;

// Bits of elements, of e4m3 numbers, and of scales as they are stored.
struct NormedRow {
  std::vector<std::uint32_t> residual, output, cast, scales;
};
using BitsOf = std::function<std::uint32_t(std::uint64_t column)>;
// Bits of a weight as a call has it, of those of an element. As f32 it is between two numbers of `type`.
std::uint32_t weight_bits(DataType type, const NormForm& form, std::uint32_t element);
inline std::size_t weight_bytes(const NormForm& form) {
  return form.gamma_f32 ? 4 : 2;
}
NormedRow normed_row(DataType type, const NormForm& form, std::uint64_t columns, const BitsOf& sum,
                     const BitsOf& residual, const BitsOf& gamma);
// Groups of a row's columns that each have a scale.
std::uint64_t scale_groups(const NormForm& form, std::uint64_t columns);

// The tensors of a norm, as bytes behind `memory`, all of `stride` packs a row, and the rows that have scales.
struct NormPlaces {
  std::byte* memory;
  std::size_t input, residual, residual_output, gamma, output, fp8, scales, fixed;
  std::uint64_t stride, rows;
};
detail::NormWork norm_work(const NormForm& form, std::uint64_t columns, const NormPlaces& at);

}  // namespace weft::sim
