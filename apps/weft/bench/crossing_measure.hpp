// Measures crossings of data-parallel attention (weft/crossings.hpp) beside the calls that they replace, with a norm on
// the way (weft/fused.hpp) or without.
#pragma once

#include <memory>

#include "workloads/crossing_shape.hpp"
#include "workloads/measure.hpp"

namespace weft::cli {

// Points are Operation::gather_sums and scatter_sums; their `rows` are tokens of an attention group.
// BenchArgs::max_bytes must be at least crossing_bytes() of each.
std::unique_ptr<Bench> open_crossing_bench(Ranks& ranks, const BenchArgs& args, const CrossingForm& form);

}  // namespace weft::cli
