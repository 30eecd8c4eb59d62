#include "ops/columns/column_numbers.hpp"

#include <fmt/format.h>

#include "comm/arguments.hpp"

namespace weft::detail {

ColumnShares ColumnNumbers::shares(const GroupState& group) const {
  check_size("shard_columns", shard_columns);
  const auto size = static_cast<std::size_t>(group.size());
  const std::size_t most = shard_columns * size;
  require(columns <= most, "columns: {} is not between 0 and {}, the size · shard_columns", columns, most);
  return column_shares(columns != 0 ? columns : most, shard_columns, size, even_shards);
}

std::string text_of(std::uint64_t columns, bool even_shards) {
  return fmt::format(" of {} columns{}", columns, even_shards ? " evenly" : "");
}

}  // namespace weft::detail
