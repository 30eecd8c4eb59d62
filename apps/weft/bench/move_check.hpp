// Checks results of calls that no benchmark times.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "workloads/measure.hpp"

namespace weft::cli {

// One call, which every process judges alike. Collective.
struct MoveCheck {
  std::string what;
  std::size_t bytes;  // of the largest tensor
  std::function<Result(Ranks& ranks)> run;
};
// All-to-alls, gathers of columns and searches in them, messages, and reductions of every type and operation, each of a
// few sizes. `ranks`: of the world.
std::vector<MoveCheck> move_checks(int ranks);

// Each rank in turn comes late, and no other rank's barrier may end before. Ranks in other processes are not checked.
// Collective.
Result check_barrier(Ranks& ranks);

}  // namespace weft::cli
