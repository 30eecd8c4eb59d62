// The places of a copy's rows at the sender and at the receiver.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "numeric/rows.hpp"
#include "ops/moves/copy_work.hpp"
#include "protocol/session.hpp"

namespace weft::detail {

// Rows for `receiver`.
template <bool aligned16, class Table>
WEFT_FN Rows<aligned16> outgoing(const Table& table, const CopyTensor& t, std::uint64_t rows, std::uint32_t receiver) {
  const auto* const from = static_cast<const std::byte*>(t.input);
  return {from + table.input_row(receiver) * t.input_stride, rows, t.row_bytes, t.input_stride};
}
// Shares whose messages have the receiver's rows instead of the sender's (ops/columns).
template <class Table>
concept ForReceivers = requires(const Table& table) {
  table.rows_for(0u);
};
template <class Table>
WEFT_FN std::uint64_t rows_between(const Table& table, std::uint32_t sender, std::uint32_t receiver) {
  if constexpr (ForReceivers<Table>) {
    return table.rows_for(receiver);
  } else {
    return table.rows_of(sender);
  }
}

// Shares whose rows do not lie side by side in the output bring places of their own (ops/columns).
template <class Table, bool aligned16>
concept HasPlaces = requires(const Table& table, const CopyTensor& t) {
  table.template place_of<aligned16>(t, 0, 0);
};

// The output's place for the rows of `owner`.
template <bool aligned16, class Table>
WEFT_FN auto incoming(const Table& table, const CopyTensor& t, std::uint64_t rows, std::uint32_t owner) {
  if constexpr (HasPlaces<Table, aligned16>) {
    return table.template place_of<aligned16>(t, rows, owner);
  } else {
    auto* const to = static_cast<std::byte*>(t.output);
    return Rows<aligned16>(to + table.output_row(owner) * t.output_stride, rows, t.row_bytes, t.output_stride);
  }
}
template <bool aligned16, class Table>
using Incoming = decltype(incoming<aligned16>(std::declval<const Table&>(), CopyTensor{}, 0, 0));

// One of the blocks that share some work.
struct BlockPart {
  std::uint64_t block, blocks;
};

// Calls `store(rows, pack)` for this thread's packs of the pads.
template <bool aligned16, Team T, class Work, class Table, class Store>
WEFT_FN void clear_pads(T& team, const Session& s, const Work& work, const Table& table, BlockPart part, Store store) {
  if (work.partition.padding == Padding::none) return;
  for (std::uint32_t rank = 0; rank < s.size(); ++rank) {
    const std::uint64_t rows = table.rows_of(rank), pads = table.slot_rows_of(rank) - rows;
    if (pads == 0) continue;
    for (std::uint32_t t = 0; t < work.count(); ++t) {
      const CopyTensor& tensor = work.tensor[t];
      auto* const to = static_cast<std::byte*>(tensor.output) + (table.output_row(rank) + rows) * tensor.output_stride;
      const Rows<aligned16> pad(to, pads, tensor.row_bytes, tensor.output_stride);
      const std::uint64_t first = part.block * team.size() + team.thread_rank();
      for (std::uint64_t i = first; i < pad.packs(); i += part.blocks * team.size()) store(pad, i);
    }
  }
}
template <bool aligned16, Team T, class Work, class Table>
WEFT_FN void clear_pads(T& team, const Session& s, const Work& work, const Table& table, BlockPart part) {
  clear_pads<aligned16>(team, s, work, table, part,
                        [](const Rows<aligned16>& pad, std::uint64_t i) { pad.store(i, Pack{}); });
}

}  // namespace weft::detail
