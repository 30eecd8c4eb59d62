// The table of weft bench dp-attention's crossings, and the explanation under it.
#pragma once

#include <string>
#include <vector>

#include "common/table.hpp"
#include "workloads/cores.hpp"
#include "workloads/crossing_shape.hpp"

namespace weft::cli {

Table crossing_table(const std::vector<Result>& results, Method method, const Crowd& crowd);
// Explains the columns that the results give the table.
std::string crossing_legend(const std::vector<Result>& results, const CrossingForm& form);

}  // namespace weft::cli
