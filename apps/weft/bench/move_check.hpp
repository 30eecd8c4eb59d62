// Calls that no benchmark times: made, and their results compared.
#pragma once

#include <cstddef>

#include "workloads/measure.hpp"

namespace weft::cli {

// Every rank sends every rank `words` words of its own. Collective; every process gets the same verdict.
Result check_all_to_all(Ranks& ranks, std::size_t words);

// Each rank in turn comes late, and no other one's barrier may have ended before: of ranks in other processes that is
// not known. Collective.
Result check_barrier(Ranks& ranks);

}  // namespace weft::cli
