#include "common/table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

namespace weft::cli {
namespace {

constexpr std::string_view kGap = "  ";

bool numeric(const std::string& cell) {
  return cell.empty() || cell == "-" || (cell.front() >= '0' && cell.front() <= '9');
}

std::string quoted(const std::string& cell) {
  if (cell.find_first_of(",\"\r\n") == std::string::npos) return cell;
  std::string out = "\"";
  for (const char c : cell) {
    if (c == '"') out += '"';
    out += c;
  }
  return out + '"';
}

}  // namespace

std::size_t width_of(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

void Table::add(std::vector<std::string> cells) {
  if (cells.size() > columns_.size()) throw std::logic_error("more cells than columns");
  cells.resize(columns_.size());
  rows_.push_back(std::move(cells));
}

std::string Table::text(std::size_t most) const {
  std::vector<std::size_t> width;
  std::vector<bool> right;
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    std::size_t widest = width_of(columns_[c]);
    bool numbers = true;
    for (const auto& row : rows_) {
      widest = std::max(widest, width_of(row[c]));
      numbers = numbers && numeric(row[c]);
    }
    width.push_back(widest);
    right.push_back(numbers);
  }
  const auto line = [&](const std::vector<std::string>& cells, const std::vector<std::size_t>& columns) {
    std::string out;
    for (const std::size_t c : columns) {
      const std::string pad(width[c] - width_of(cells[c]), ' ');
      if (c > 0) out += kGap;
      out += right[c] ? pad + cells[c] : cells[c] + pad;
    }
    out.erase(out.find_last_not_of(' ') + 1);
    return out + '\n';
  };
  std::string out;
  for (std::size_t next = 0; next < columns_.size();) {
    const std::size_t begin = next;
    std::vector<std::size_t> columns;
    std::size_t taken = 0;
    const auto take = [&](std::size_t c) {
      columns.push_back(c);
      taken += width[c] + kGap.size();
    };
    for (std::size_t key = 0; begin != 0 && key < keys_; ++key) take(key);
    // Take at least one column, however wide it is.
    while (next < columns_.size() && (next == begin || next < keys_ || taken + width[next] <= most)) take(next++);
    if (begin != 0) out += '\n';
    out += line(columns_, columns);
    for (const auto& row : rows_) out += line(row, columns);
  }
  return out;
}

std::string Table::csv() const {
  const auto line = [](const std::vector<std::string>& cells) {
    std::string out;
    for (std::size_t c = 0; c < cells.size(); ++c) out += (c > 0 ? "," : "") + quoted(cells[c]);
    return out + '\n';
  };
  std::string out = line(columns_);
  for (const auto& row : rows_) out += line(row);
  return out;
}

}  // namespace weft::cli
