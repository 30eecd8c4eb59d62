// Measures all-reduces with residual and norm.
#pragma once

#include <memory>

#include "workloads/measure.hpp"
#include "workloads/norm_reference.hpp"

namespace weft::cli {

// Points are Operation::all_reduce_rms_norm, or Operation::all_reduce of the same rows.
std::unique_ptr<Bench> open_norm_bench(Ranks& ranks, const BenchArgs& args, const NormForm& form);

}  // namespace weft::cli
