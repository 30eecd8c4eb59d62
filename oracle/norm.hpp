// RMSNorm of a row that a residual was added to, with one rounding of each result and f32 between.
#pragma once

#include "oracle/number.hpp"

namespace weft::oracle {

// Element by element: bits of `type`.
std::vector<std::uint32_t> add_rows(Type type, std::span<const std::uint32_t> a, std::span<const std::uint32_t> b);
std::vector<float> values_of(Type type, std::span<const std::uint32_t> row);

// 1 / sqrt(Σ x² · (1 / h) + ε) of a row of h columns, h a multiple of 8. The order in which squares are added depends
// on h alone: packs of 8, one by one; segments of 32 packs, as a tree; segments 32 apart, one by one; these, as a tree.
float norm_factor(std::span<const float> row, float epsilon);

// row · factor · γ, from left to right, and rounded. γ is `weights`, as they are; `plus_one`: 1 more.
std::vector<std::uint32_t> normed_row(Type type, std::span<const std::uint32_t> row, std::span<const float> weights,
                                      bool plus_one, float epsilon);

}  // namespace weft::oracle
