// Checks results of calls that no benchmark times.
#pragma once

#include <cstddef>

#include "workloads/measure.hpp"

namespace weft::cli {

// Every rank sends every rank `words` words of its own. Collective; every process gets the same verdict.
Result check_all_to_all(Ranks& ranks, std::size_t words);

// Each rank in turn comes late, and no other rank's barrier may end before. Ranks in other processes are not checked.
// Collective.
Result check_barrier(Ranks& ranks);

}  // namespace weft::cli
