// The numbers of columns of a call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "comm/state.hpp"
#include "numeric/column_shares.hpp"

namespace weft::detail {

// As callers give them: `columns` of all ranks, 0 for all that there can be.
struct ColumnNumbers {
  std::size_t shard_columns, columns;
  bool even_shards;

  // The columns of each rank. Throws Errc::invalid_argument.
  ColumnShares shares(const GroupState& group) const;
};
// " of 10 columns evenly".
std::string text_of(std::uint64_t columns, bool even_shards);

}  // namespace weft::detail
