// Compares Weft with the best of its peers.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "workloads/cores.hpp"
#include "workloads/measure.hpp"

namespace weft::cli {

// The fastest right result of a peer for the same operation, size and method; null if there is none.
const Result* best_peer(const std::vector<Result>& results, const Point& point);

// The best peer's time over Weft's, or the reason why there is none.
struct SpeedUp {
  std::optional<double> ratio = {};
  std::string why_none = {};
};
SpeedUp speed_up(const Result& ours, const Result* peer, const Crowd& crowd);
// NCCL's time on symmetric windows over Weft's to symmetric memory, for the point's operation, size and method.
SpeedUp symmetric_speed_up(const std::vector<Result>& results, const Point& point, const Crowd& crowd);
// "1.50", or "-".
std::string cell(const SpeedUp& speed_up);

}  // namespace weft::cli
