// The columns of each rank, where ranks share the columns of rows: a vocabulary, for example.
#pragma once

#include <cstdint>

#include "base/function.hpp"
#include "base/pack.hpp"

namespace weft::detail {

struct ColumnShares {
  std::uint64_t each;    // columns of every rank
  std::uint64_t longer;  // the first ranks that have one more
  std::uint64_t all;     // of all ranks together: what the last ranks have behind them are pads

  WEFT_FN std::uint64_t first(std::uint32_t rank) const {
    const std::uint64_t before = rank * each + (rank < longer ? rank : longer);
    return before < all ? before : all;
  }
  WEFT_FN std::uint64_t count(std::uint32_t rank) const {
    const std::uint64_t own = each + (rank < longer ? 1 : 0), rest = all - first(rank);
    return own < rest ? own : rest;
  }
  // Whether the columns of every rank begin and end at whole packs.
  bool are_whole_packs(std::uint64_t element) const { return each * element % sizeof(Pack) == 0 && longer == 0; }
};

// `even`: as torch.tensor_split divides them. Otherwise each rank has `shard_columns`, as long as there are any.
inline ColumnShares column_shares(std::uint64_t columns, std::uint64_t shard_columns, std::uint64_t ranks, bool even) {
  if (even) return {columns / ranks, columns % ranks, columns};
  return {shard_columns, 0, columns};
}

}  // namespace weft::detail
