// The type of rows that a model sends to its experts.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "models/models.hpp"
#include "weft/moe.hpp"

namespace weft::cli {

// The words of `--dispatch`. Rows of f16 are not cast either.
inline constexpr std::pair<RowCast, std::string_view> kCastNames[] = {
    {RowCast::fp8, "fp8"}, {RowCast::fp8_ue8m0, "fp8-ue8m0"}, {RowCast::fp8_pow2, "fp8-pow2"}, {RowCast::none, "bf16"}};

constexpr std::string_view cast_name(RowCast cast) {
  for (const auto& [value, name] : kCastNames)
    if (value == cast) return name;
  return {};
}
constexpr RowCast cast_of(std::string_view word) {
  for (const auto& [value, name] : kCastNames)
    if (name == word) return value;
  return RowCast::none;
}

// fp8, as for DeepSeek-V3. bf16 if a row is no multiple of a scale's columns.
inline RowCast usual_cast(const ModelShape& model) {
  return model.row_width() % std::int64_t{kScaleColumns} == 0 ? RowCast::fp8 : RowCast::none;
}

// The reason why rows are not cast; empty if they are.
inline std::string cast_note(const ModelShape& model) {
  if (usual_cast(model) == RowCast::fp8) return {};
  return fmt::format("Rows are bf16: {} {} is no multiple of the {} columns that share a scale of fp8",
                     model.latent != 0 ? "their width" : "hidden", model.row_width(), kScaleColumns);
}

}  // namespace weft::cli
