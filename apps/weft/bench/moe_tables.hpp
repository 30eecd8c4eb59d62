// The tables of weft bench moe, and the explanations under them.
#pragma once

#include <string>
#include <vector>

#include "bench/moe_measure.hpp"
#include "common/table.hpp"
#include "workloads/cores.hpp"

namespace weft::cli {

// Weft's times and rates: a line for each number of tokens and of blocks.
Table moe_table(const std::vector<MoeResult>& results, const MoeExchangeArgs& args);
// Weft beside its rivals: a line for each operation as well. No line if there are no rivals.
Table moe_rival_table(const std::vector<MoeResult>& results, const Crowd& crowd);
// "payloads of 896 + 4 bytes", if there are any.
std::string payloads_in_words(const MoeExchangeArgs& args);
// Explains the columns that the table above has.
std::string moe_rival_legend(const std::vector<MoeResult>& results, const MoeExchangeArgs& args);

}  // namespace weft::cli
