// The source of each column of the output, in set-ups of calls on columns.
#pragma once

#include <cstddef>
#include <cstdint>

#include "sim/setup.hpp"

namespace weft::sim {

struct ColumnSource {
  std::size_t member;
  std::uint64_t column;
};
// Counts the columns of one member after the other, so that no formula of the kernels' is used.
inline ColumnSource source_of_column(const CallSetup& spec, std::size_t members, std::uint64_t column) {
  ColumnSource source{0, column};
  const auto own = [&] {
    return spec.even_shards ? (spec.columns + members - 1 - source.member) / members : spec.count;
  };
  for (; source.column >= own(); ++source.member) source.column -= own();
  return source;
}

}  // namespace weft::sim
