// A table of text: aligned columns for people, CSV for programs.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace weft::cli {

class Table {
 public:
  // The first `keys` columns identify a line.
  explicit Table(std::vector<std::string> columns, std::size_t keys = 1) : columns_(std::move(columns)), keys_(keys) {}

  // More cells than columns are the caller's mistake. Missing cells stay empty.
  void add(std::vector<std::string> cells);

  // Two spaces separate columns. A column whose every cell starts like a number is right-aligned. Columns beyond `most`
  // continue in a second table below, with the keys again.
  std::string text(std::size_t most = kMostColumns) const;

  // RFC 4180: commas, quotes and line ends inside a cell are quoted.
  std::string csv() const;

  std::size_t rows() const { return rows_.size(); }

  // The width of a usual terminal.
  static constexpr std::size_t kMostColumns = 100;

 private:
  std::vector<std::string> columns_;
  std::vector<std::vector<std::string>> rows_;
  std::size_t keys_;
};

// Columns that `text` takes on a terminal. UTF-8 continuation bytes take none.
std::size_t width_of(std::string_view text);

}  // namespace weft::cli
