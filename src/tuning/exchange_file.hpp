// Exchanges in files of tuning tables: read with all checks, and written.
#pragma once

#include <string>
#include <vector>

#include "tuning/exchange_steps.hpp"
#include "tuning/file_node.hpp"

namespace weft::detail {

ExchangeSize read_exchange_size(const FileNode& table);
std::vector<ExchangeStep> read_exchange_steps(const FileNode& table, const ExchangeSize& size);

// The keys of a size, each with a comma behind it; a step as one object.
std::string to_json(const ExchangeSize& size);
std::string to_json(const ExchangeStep& step);
// "7168 columns, 32 experts on each rank, top 8, masked rows, cast fp8".
std::string in_words(const ExchangeSize& size);

}  // namespace weft::detail
