// A table of text: aligned columns for people, CSV for spreadsheets.
#pragma once

#include <string>
#include <vector>

namespace weft::cli {

class Table {
 public:
  explicit Table(std::vector<std::string> columns) : columns_(std::move(columns)) {}

  // Cells beyond the columns are a mistake of the caller's; missing ones are left empty.
  void add(std::vector<std::string> cells);

  // Two spaces between columns; a column whose every cell starts like a number is aligned to the right.
  std::string text() const;
  // With a column before the others whose every cell is `value`.
  Table with(const std::string& column, const std::string& value) const;
  // Rows of several tables in one. Columns are the same when their names are; cells that a table does not have are
  // empty.
  static Table joined(const std::vector<Table>& tables);

  // RFC 4180: commas, quotes and line ends inside a cell are quoted.
  std::string csv() const;

  std::size_t rows() const { return rows_.size(); }

 private:
  std::vector<std::string> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace weft::cli
