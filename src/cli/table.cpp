#include "table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

namespace weft::cli {
namespace {

// Columns that `text` takes on a terminal: UTF-8 continuation bytes take none.
std::size_t width_of(const std::string& text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

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

void Table::add(std::vector<std::string> cells) {
  if (cells.size() > columns_.size()) throw std::logic_error("more cells than columns");
  cells.resize(columns_.size());
  rows_.push_back(std::move(cells));
}

Table Table::with(const std::string& column, const std::string& value) const {
  Table wider = *this;
  wider.columns_.insert(wider.columns_.begin(), column);
  for (auto& row : wider.rows_) row.insert(row.begin(), value);
  return wider;
}

Table Table::joined(const std::vector<Table>& tables) {
  Table all({});
  const auto place = [&](const std::string& column) {
    return static_cast<std::size_t>(std::ranges::find(all.columns_, column) - all.columns_.begin());
  };
  for (const auto& table : tables)
    for (const auto& column : table.columns_)
      if (place(column) == all.columns_.size()) all.columns_.push_back(column);
  for (const auto& table : tables) {
    for (const auto& row : table.rows_) {
      std::vector<std::string> cells(all.columns_.size());
      for (std::size_t c = 0; c < row.size(); ++c) cells[place(table.columns_[c])] = row[c];
      all.rows_.push_back(std::move(cells));
    }
  }
  return all;
}

std::string Table::text() const {
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
  const auto line = [&](const std::vector<std::string>& cells) {
    std::string out;
    for (std::size_t c = 0; c < cells.size(); ++c) {
      const std::string pad(width[c] - width_of(cells[c]), ' ');
      if (c > 0) out += "  ";
      out += right[c] ? pad + cells[c] : cells[c] + pad;
    }
    out.erase(out.find_last_not_of(' ') + 1);
    return out + '\n';
  };
  std::string out = line(columns_);
  for (const auto& row : rows_) out += line(row);
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
