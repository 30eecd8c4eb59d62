// The calls that `weft verify` makes on all ranks together.
#pragma once

#include <cstddef>
#include <vector>

#include "bench/crossing_measure.hpp"
#include "bench/gather_measure.hpp"
#include "workloads/measure.hpp"

namespace weft::cli {

struct Verified {
  Device device = Device::cpu;
  std::size_t most = 0;  // bytes of the largest message
  bool direct = true;    // ranks reach each other's memory
  bool multicast = false, thorough = false;
};

// Every size class, and an odd size, which takes another instance. Other operations, and types of which models reduce
// little, share everything with sums except the addition.
std::vector<Point> sum_points(const Verified& verified);
std::vector<Point> gather_points(const Verified& verified, const GatherModel& rows);
std::vector<Point> crossing_points(const Verified& verified, const CrossingForm& form);

}  // namespace weft::cli
