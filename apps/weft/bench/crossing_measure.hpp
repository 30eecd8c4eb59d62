// Measures crossings of data-parallel attention (weft/crossings.hpp) beside the calls that they replace.
#pragma once

#include <cstdint>
#include <memory>

#include "weft/parallel.hpp"
#include "workloads/measure.hpp"

namespace weft::cli {

struct CrossingForm {
  ParallelLayout layout = {};
  std::int64_t hidden = 0;

  // Tokens of attention group `group`, of which a point has `rows`.
  std::size_t tokens(const Point& point, int group) const;
};

// The bytes of the largest buffer of a point.
std::size_t crossing_bytes(const CrossingForm& form, const Point& point);

// Points are Operation::gather_sums and scatter_sums; their `rows` are tokens of an attention group.
std::unique_ptr<Bench> open_crossing_bench(Ranks& ranks, const BenchArgs& args, const CrossingForm& form);

}  // namespace weft::cli
