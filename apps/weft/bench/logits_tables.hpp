// The table of logits, and the explanation under it.
#pragma once

#include <vector>

#include "bench/logits_measure.hpp"
#include "common/table.hpp"
#include "workloads/cores.hpp"

namespace weft::cli {

Table logits_table(const std::vector<Result>& results, Method method, const Crowd& crowd);
const char* logits_legend(const LogitsForm& form);

}  // namespace weft::cli
