// The change of elements on their way to the output.
#pragma once

#include <cstddef>
#include <string>

#include "numeric/element_map.hpp"
#include "weft/types.hpp"

namespace weft::detail {

// As callers give it; the same on every rank.
struct ColumnChange {
  DataType type;
  bool output_f32;
  float scale, soft_cap;

  bool widens() const { return output_f32 && type != DataType::f32; }
  std::size_t widening() const { return widens() ? 2 : 1; }
  // Whether bits change.
  bool is_any() const { return widens() || scale != 1.0f || soft_cap != 0; }
  float factor() const { return soft_cap != 0 ? scale / soft_cap : scale; }
  ElementMap map() const {
    return {.from = type, .to = output_f32 ? DataType::f32 : type, .factor = factor(), .soft_cap = soft_cap};
  }

  // Throws Errc::invalid_argument.
  void check() const;
  std::string text() const;
  std::uint32_t fingerprint() const;
};

}  // namespace weft::detail
