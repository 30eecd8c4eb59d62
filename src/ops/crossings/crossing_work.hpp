// Arguments of a crossing's kernel.
#pragma once

#include <cstddef>
#include <cstdint>

#include "numeric/rows.hpp"
#include "ops/crossings/crossing_partition.hpp"

namespace weft::detail {

struct CrossingWork {
  CrossingPartition partition;
  std::uint64_t slot_packs;     // of the wire: longer shards flow
  std::uint64_t one_hop_packs;  // … and groups with fewer go in one hop; the same on every rank
  const void* input;
  void* output;
  std::uint64_t row_bytes, input_stride, output_stride;

  // Packs of payload.
  WEFT_FN std::uint64_t units(std::uint64_t rows) const { return (rows * row_bytes + sizeof(Pack) - 1) / sizeof(Pack); }
  // If it is known that they have less than 4 GiB.
  WEFT_FN std::uint32_t few_units(std::uint32_t rows) const {
    constexpr std::uint32_t unit = sizeof(Pack);
    return (rows * static_cast<std::uint32_t>(row_bytes) + unit - 1) / unit;
  }
  // Rows of the input, and of the output.
  template <bool aligned16>
  WEFT_FN Rows<aligned16> rows_from(std::uint64_t first, std::uint64_t rows) const {
    return {static_cast<const std::byte*>(input) + first * input_stride, rows, row_bytes, input_stride};
  }
  template <bool aligned16>
  WEFT_FN Rows<aligned16> rows_at(std::uint64_t first, std::uint64_t rows) const {
    return {static_cast<std::byte*>(output) + first * output_stride, rows, row_bytes, output_stride};
  }
  // The shard of `owner`: this rank's part of its sum, and the place of the sum.
  template <bool aligned16, class Table>
  WEFT_FN Rows<aligned16> part_of(const Table& table, std::uint32_t owner) const {
    return rows_from<aligned16>(partition.input_row(table, owner), table.rows_of(owner));
  }
  template <bool aligned16, class Table>
  WEFT_FN Rows<aligned16> place_of(const Table& table, std::uint32_t owner) const {
    return rows_at<aligned16>(partition.output_row(table, owner), table.rows_of(owner));
  }
};

}  // namespace weft::detail
