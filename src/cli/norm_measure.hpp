// All-reduces with residual and norm.
#pragma once

#include <memory>
#include <optional>

#include "measure.hpp"
#include "weft/fused.hpp"

namespace weft::cli {

// Points are Operation::all_reduce_rms_norm, or the Operation::all_reduce of the same rows. `fp8`: rows as e4m3 are
// made beside the normed ones.
std::unique_ptr<Bench> open_norm_bench(Ranks& ranks, const BenchArgs& args, std::optional<Fp8Scaling> fp8);

}  // namespace weft::cli
