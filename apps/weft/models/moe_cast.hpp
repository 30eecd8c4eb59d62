// The default type of rows that a model sends to its experts.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>

#include "models/models.hpp"
#include "weft/moe.hpp"

namespace weft::cli {

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
