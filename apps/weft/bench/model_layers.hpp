// Communication of a model's layers besides all-reduces, for `weft bench`: the gather and scatter of data-parallel
// attention, and the dispatch and combine of experts on different ranks.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/bench_options.hpp"
#include "bench/moe_measure.hpp"

namespace weft::cli {

struct LayerResults {
  std::vector<Result> gathers;
  std::vector<MoeResult> exchanges;
  std::vector<std::string> notes;  // each missing measurement and the reason

  bool correct() const { return all_correct(gathers) && all_correct(exchanges); }
};

// `batches`: tokens of a forward pass, split over the ranks. The ranks may be unusable afterwards.
LayerResults measure_layers(Ranks& ranks, const ModelShape& shape, const std::vector<std::int64_t>& batches,
                            const BenchOptions& options);

Table layer_table(const ModelShape& shape, const LayerResults& results, const Crowd& crowd);

}  // namespace weft::cli
