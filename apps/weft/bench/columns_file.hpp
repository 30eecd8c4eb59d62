// Columns that bench/rivals.py has measured: what other libraries take for the same tokens, in a run of their own.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "bench/tokens_file.hpp"
#include "workloads/measure.hpp"

namespace weft::cli {

// A rival's time for one operation and number of tokens.
struct ColumnPoint {
  std::string column;     // "DeepEP LL (other run)"
  std::string operation;  // dispatch, combine, both or layer
  std::string digest;     // of the tokens
  Result result = {};     // rows: tokens of each rank; blocks: processors, 0 if that is the rival's affair
};

// A point of a report.
nlohmann::json to_json(const ColumnPoint& point);

// A point and Weft's time for the same in this run; 0: there is none.
struct BesideColumn {
  ColumnPoint point;
  double weft_us = 0;
};
// A line for each, and what the lines mean. Empty without any.
std::string columns_table(const std::vector<BesideColumn>& points, std::string_view weft);

struct Columns {
  std::string file;
  std::vector<ColumnPoint> points = {};
  std::vector<std::string> notes = {};  // for each column: its version, what it contains and when it was measured

  // The points of some tokens. Throws Errc::invalid_argument if the file has them with other experts.
  std::vector<ColumnPoint> of(const RoutedTokens& tokens) const;
};

// This run, with which the file must agree.
struct ColumnsOf {
  TokensShape shape;
  std::string gpu;                        // its name; empty: CPU ranks
  std::vector<std::int64_t> tokens;       // numbers of them
  std::vector<std::string_view> columns;  // operations that are shown
};
// Throws Errc::invalid_argument for any other file, and says what differs. Without a name there are no columns.
Columns read_columns(const std::filesystem::path& file, const ColumnsOf& run);

}  // namespace weft::cli
