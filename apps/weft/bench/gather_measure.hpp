// Measures the gathers and scatters of data-parallel attention, ragged and equal, and the peer's (NCCL or Gloo).
#pragma once

#include <memory>

#include "workloads/gather_shape.hpp"

namespace weft::cli {

// BenchArgs::max_bytes must be at least gather_bytes() of every point that will be run.
std::unique_ptr<Bench> open_gather_bench(Ranks& ranks, const BenchArgs& args, const GatherModel& model);

// The larger of a rank's input and output, for any contender.
std::size_t gather_bytes(const GatherModel& model, const Point& point);

// The point of `operation` with `tokens` per attention group. Its contender is not set.
Point gather_point(const GatherModel& model, Operation operation, Load load, std::int64_t tokens, DataType type);

}  // namespace weft::cli
