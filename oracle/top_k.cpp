#include "oracle/top_k.hpp"

#include <algorithm>
#include <cmath>

namespace weft::oracle {

std::vector<Found> largest_of(std::span<const std::byte> row, Type type, std::size_t count) {
  struct Column {
    double number;
    std::uint32_t column;
  };
  std::vector<Column> columns;
  for (std::uint32_t i = 0; i < row.size() / bytes_of(type); ++i) {
    columns.push_back({number_at(row, type, i), i});
  }
  std::ranges::sort(columns, [](const Column& a, const Column& b) {
    if (std::isnan(a.number) != std::isnan(b.number)) return std::isnan(a.number);
    if (std::isnan(a.number) || a.number == b.number) return a.column < b.column;
    return a.number > b.number;
  });
  std::vector<Found> found;
  const Format format = format_of(type);
  for (std::size_t i = 0; i < count; ++i) {
    const auto [number, column] = columns[i];
    found.push_back({number == 0 ? 0 : round_to(format, number), column});
  }
  return found;
}

}  // namespace weft::oracle
