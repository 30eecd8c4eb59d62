// The norm of a row, by plain loops.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "sim/setup.hpp"

namespace weft::sim {

inline constexpr float kFixedScale = 0.375f;

// Bits of elements, of e4m3 numbers, and of scales as they are stored.
struct NormedRow {
  std::vector<std::uint32_t> residual, output, cast, scales;
};
using BitsOf = std::function<std::uint32_t(std::uint64_t column)>;
NormedRow normed_row(DataType type, const NormForm& form, std::uint64_t columns, const BitsOf& sum,
                     const BitsOf& residual, const BitsOf& gamma);
// Groups of a row's columns that each have a scale.
std::uint64_t scale_groups(const NormForm& form, std::uint64_t columns);

}  // namespace weft::sim
