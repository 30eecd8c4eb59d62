// Arguments of a reduce-scatter's kernel.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/function.hpp"
#include "numeric/rows.hpp"
#include "weft/types.hpp"

namespace weft::detail {

template <class Partition>
struct ReduceScatterWork {
  Partition partition;
  std::uint64_t slot_packs;  // of the wire: longer shards flow
  const void* input;
  void* output;
  std::uint64_t row_bytes, input_stride, output_stride;
  ReduceOp op = ReduceOp::sum;

  // Packs of payload.
  WEFT_FN std::uint64_t units(std::uint64_t rows) const { return (rows * row_bytes + sizeof(Pack) - 1) / sizeof(Pack); }
  // This rank's rows for `owner`, and the rows of its own result.
  template <bool aligned16, class Table>
  WEFT_FN Rows<aligned16> part_of(const Table& table, std::uint32_t owner) const {
    const auto* const from = static_cast<const std::byte*>(input);
    return {from + table.offset_of(owner) * input_stride, table.rows_of(owner), row_bytes, input_stride};
  }
  template <bool aligned16, class Table>
  WEFT_FN Rows<aligned16> result(const Table& table, std::uint32_t rank) const {
    return {output, table.rows_of(rank), row_bytes, output_stride};
  }
};

}  // namespace weft::detail
