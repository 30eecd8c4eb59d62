// Measures crossings of data-parallel attention (weft/crossings.hpp) beside the calls that they replace, with a norm on
// the way (weft/fused.hpp) or without.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "weft/parallel.hpp"
#include "workloads/measure.hpp"
#include "workloads/norm_reference.hpp"

namespace weft::cli {

struct CrossingForm {
  ParallelLayout layout = {};
  std::int64_t hidden = 0;
  std::optional<NormForm> norm = {};  // fused with crossings. If it casts, there are no rows of the points' type

  // Tokens of attention group `group`, of which a point has `rows`.
  std::size_t tokens(const Point& point, int group) const;
};

// The bytes of the largest buffer of a point.
std::size_t crossing_bytes(const CrossingForm& form, const Point& point);

// Points are Operation::gather_sums and scatter_sums; their `rows` are tokens of an attention group.
std::unique_ptr<Bench> open_crossing_bench(Ranks& ranks, const BenchArgs& args, const CrossingForm& form);

}  // namespace weft::cli
