// Measures the gathers and scatters of DP attention, ragged and equal, beside those of NCCL or Gloo.
#pragma once

#include <memory>

#include "workloads/gather_shape.hpp"

namespace weft::cli {

// BenchArgs::max_bytes must be gather_bytes() of every point that will be run.
std::unique_ptr<Bench> open_gather_bench(Ranks& ranks, const BenchArgs& args, const GatherModel& model);

// The larger of a rank's input and output, by whichever contender.
std::size_t gather_bytes(const GatherModel& model, const Point& point);

// The point that stands for `operation` on `tokens` per attention group, by nobody yet.
Point gather_point(const GatherModel& model, Operation operation, Load load, std::int64_t tokens, DataType type);

}  // namespace weft::cli
