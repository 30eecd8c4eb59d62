// Rows of a program's dispatches: as they are given, and as they come.
#pragma once

#include <cstddef>
#include <vector>

#include "ops/moe/exchange.hpp"
#include "sim/memory.hpp"
#include "sim/setup.hpp"

namespace weft::sim {

using Bytes = std::vector<std::byte>;

inline std::size_t input_row_bytes(const detail::ExchangeShape& shape) {
  return std::size_t{shape.input_packs} * sizeof(Pack);
}
inline std::size_t sent_row_bytes(const detail::ExchangeShape& shape) {
  return shape.cast == RowCast::none ? input_row_bytes(shape) : shape.columns;
}
inline std::size_t sent_scale_bytes(const detail::ExchangeShape& shape) {
  return shape.cast == RowCast::none ? shape.scale_bytes
                                     : shape.groups * (detail::scales_are_bytes(shape.cast) ? 1u : 4u);
}

// Includes the bytes behind a row's scales, which no rank writes.
inline std::size_t output_scale_bytes(const detail::ExchangeShape& shape) {
  const std::size_t bytes = sent_scale_bytes(shape);
  return shape.scale_order == ScaleOrder::columns ? (bytes + 3) / 4 * 4 : bytes;
}
// The place of byte `byte` of the scales of an output's row.
inline std::size_t scale_place(const detail::ExchangeShape& shape, std::size_t row, std::size_t byte) {
  const std::size_t bytes = output_scale_bytes(shape);
  if (shape.scale_order == ScaleOrder::rows) return row * bytes + byte;
  const std::size_t together = shape.layout == RowLayout::expert_masked ? shape.capacity : shape.rows;
  const std::size_t first = row / together * together;
  return first * bytes + (byte / 4 * together + row - first) * 4 + byte % 4;
}

// A row in its input form, with its scales and then its payloads behind it, and in its output form.
Bytes given_row(const Setup& setup, const detail::ExchangeShape& shape, unsigned call, unsigned rank,
                std::uint32_t token);
Bytes sent_row(const Setup& setup, const detail::ExchangeShape& shape, unsigned call, unsigned rank,
               std::uint32_t token);

}  // namespace weft::sim
